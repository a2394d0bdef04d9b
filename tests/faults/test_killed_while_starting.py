"""Workers and supervisors that another process kills before the first sample: restarted as `max_restarts` allows."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import Numbers, numbers, run_program
from holdfast import DataLoader, TooManyRestarts, WorkerInitError
from holdfast.workers import supervisor
from memory_cgroups import limited_cgroup

pytestmark = pytest.mark.timeout(150)

LENGTH = 12
METHODS = ["fork", "spawn", "forkserver", "portable"]


@dataclass(frozen=True)
class Killer:
    """Has another process send a signal to the one that calls it, so often; the main process is spared."""

    marks: Path
    times: int
    number: int = signal.SIGKILL
    main_pid: int = -1

    def __call__(self, worker_id: int = 0) -> None:
        if os.getpid() != self.main_pid and self.count() < self.times:
            (self.marks / str(os.getpid())).touch()
            subprocess.run(["kill", f"-{int(self.number)}", str(os.getpid())], check=True)
            signal.pause()

    def count(self) -> int:
        return len(list(self.marks.iterdir()))


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    directory = tmp_path / "marks"
    directory.mkdir()
    return directory


def new_loader(method: str, dataset: Any = None, **options: Any) -> DataLoader[torch.Tensor]:
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    return DataLoader(dataset or Numbers(LENGTH), 2, num_workers=1, **how, **options)


def check_whole(loader: DataLoader[torch.Tensor]) -> None:
    assert torch.equal(torch.cat(list(loader)), numbers(0, LENGTH, 4))


# -- workers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_a_worker_killed_in_its_init_function_is_restarted(method: str, number: int, marks: Path) -> None:
    """As often as max_restarts says; the epoch is whole."""
    killer = Killer(marks, 3, number)
    with new_loader(method, worker_init_fn=killer, max_restarts=3) as loader:
        check_whole(loader)
        assert [incident.done for incident in loader.incidents] == ["restarted"] * 3
        assert loader.stats().restarts == 3
    assert killer.count() == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("max_restarts", [0, 2])
def test_a_worker_killed_once_more_than_that_is_too_many(method: str, max_restarts: int, marks: Path) -> None:
    """TooManyRestarts, with the argument that allowed no more: nothing is wrong with what workers start with."""
    killer = Killer(marks, 100)
    with new_loader(method, worker_init_fn=killer, max_restarts=max_restarts) as loader:
        with pytest.raises(TooManyRestarts) as caught:
            list(loader)
        assert f"max_restarts={max_restarts}" in str(caught.value)
        assert "SIGKILL" in str(caught.value)
        assert "would end the same way" not in str(caught.value)
        assert [incident.done for incident in loader.incidents] == [*["restarted"] * max_restarts, "raised"]
        assert caught.value.incident is loader.incidents[-1]
    assert killer.count() == max_restarts + 1


class KilledWhenLoaded(Numbers):
    def __init__(self, killer: Killer) -> None:
        super().__init__(LENGTH)
        self.killer = killer

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.killer()


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_worker_killed_while_it_unpickles_the_dataset_is_restarted(method: str, marks: Path) -> None:
    """Twice, which was once too many."""
    killer = Killer(marks, 2, main_pid=os.getpid())
    with new_loader(method, KilledWhenLoaded(killer), max_restarts=2) as loader:
        check_whole(loader)
        assert [incident.done for incident in loader.incidents] == ["restarted"] * 2


def exit_at_once(worker_id: int) -> None:
    os._exit(3)


@pytest.mark.parametrize("method", METHODS)
def test_a_fault_of_its_own_is_not_tried_again(method: str) -> None:
    """Whatever max_restarts says: an init function that ends its process does so each time."""
    with new_loader(method, worker_init_fn=exit_at_once, max_restarts=100) as loader:
        with pytest.raises(WorkerInitError, match="another worker would end the same way"):
            list(loader)
        assert len(loader.incidents) == 1


@pytest.mark.root
@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_needs_too_much_memory_to_start_is_tried_once_more(method: str) -> None:
    """Killed by the kernel, and by nobody else: what it starts with is at fault, whatever max_restarts says."""
    with limited_cgroup(1 << 30) as cgroup:
        said = run_program("hungry_init.py", str(cgroup.directory), method)
    assert said == "WorkerInitError [('out of memory', 'restarted'), ('out of memory', 'raised')]\n"


# -- imports -----------------------------------------------------------------------------------------------------------

MODULE = """\
from pathlib import Path

from helpers import Numbers
from test_killed_while_starting import Killer

Killer(Path({marks!r}), {times}, main_pid={main_pid})()


class FromHere(Numbers):
    pass
"""


def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killer: Killer) -> Any:
    """A dataset whose module kills who imports it."""
    name = f"killed_by_{tmp_path.name}"
    text = MODULE.format(marks=str(killer.marks), times=killer.times, main_pid=killer.main_pid)
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module(name).FromHere(LENGTH)


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_process_killed_while_it_imports_is_restarted(
    method: str, tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor, which imports for all workers; of the portable backend the worker itself."""
    killer = Killer(marks, 3, main_pid=os.getpid())
    with new_loader(method, imported(tmp_path, monkeypatch, killer), max_restarts=3) as loader:
        check_whole(loader)
        assert [incident.done for incident in loader.incidents] == ["restarted"] * 3
        stats = loader.stats()
        assert (stats.restarts, stats.supervisor_restarts) == ((3, 0) if method == "portable" else (0, 3))


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("max_restarts", [0, 2])
def test_a_process_killed_once_more_than_that_while_it_imports_is_too_many(
    method: str, max_restarts: int, tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not an error of the import."""
    killer = Killer(marks, 100, main_pid=os.getpid())
    with new_loader(method, imported(tmp_path, monkeypatch, killer), max_restarts=max_restarts) as loader:
        with pytest.raises(TooManyRestarts) as caught:
            list(loader)
        assert "SIGKILL" in str(caught.value)
        assert "would end the same way" not in str(caught.value)
        assert method == "portable" or f"importing killed_by_{tmp_path.name}" in " ".join(str(caught.value).split())
    assert killer.count() == max_restarts + 1


@pytest.mark.parametrize(("max_restarts", "kills"), [(5, 5), (5, 6), (0, 1)])
def test_a_forked_supervisor_killed_before_its_first_worker_is_restarted(
    max_restarts: int, kills: int, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as max_restarts says, and no more."""
    killer, import_quietly = Killer(marks, kills), supervisor.import_quietly

    def import_after_that(*args: Any) -> None:
        killer()
        import_quietly(*args)

    monkeypatch.setattr(supervisor, "import_quietly", import_after_that)  # a forked supervisor has it too
    with new_loader("fork", max_restarts=max_restarts) as loader:
        if kills <= max_restarts:
            check_whole(loader)
            assert loader.stats().supervisor_restarts == kills
        else:
            with pytest.raises(TooManyRestarts, match="supervisor"):
                list(loader)
    assert killer.count() == kills
