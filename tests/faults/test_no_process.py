"""The kernel refuses a process, or the descriptors that it takes: one error that says so, with the limit."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from helpers import PATIENCE_S, Numbers, numbers, run_program, wait_until, worker_pids
from holdfast import DataLoader
from holdfast.cgroup_files import directories_of
from holdfast.workers.launching import Forking, Identity, Newborn

pytestmark = pytest.mark.timeout(150)

ONE_THREAD = ("env", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1")  # each counts as a process does
_numbers = itertools.count()


def refused(how: str, room: int, method: str) -> list[str]:
    """The lines of what the loader of `no_process.py` raised: one error, and nothing on stderr."""
    lines = run_program("no_process.py", how, str(room), method, before=ONE_THREAD).splitlines()
    lines = [line for line in lines if not line.startswith("batch ")]  # a worker that was started may load one
    assert lines[0] == "WorkerInitError"
    assert "importing" not in "\n".join(lines)
    assert lines[-1] == f"incidents [('{cause_of(lines[1])}', 'raised')]"
    return lines[1:-1]


def cause_of(first_line: str) -> str:
    return "too many open files" if "Too many open files" in first_line else "failure before the first sample"


@pytest.mark.parametrize(
    ("method", "room"),
    [
        ("fork", 24),
        pytest.param("fork", 18, marks=pytest.mark.long),
        ("fork", 12),
        pytest.param("fork", 10, marks=pytest.mark.long),
        ("spawn", 24),
        ("spawn", 14),
        ("portable", 24),
        ("portable", 14),
    ],
)
def test_a_process_for_which_there_is_no_descriptor_is_refused(method: str, room: int) -> None:
    """RLIMIT_NOFILE, reached in the supervisor or in the main process; who holds them is said."""
    first, *others = refused("descriptors", room, method)
    assert first == "no process could be started: Too many open files"
    assert f" of {room}: " in "\n".join(others)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user who has no other process")
@pytest.mark.parametrize("room", [0, 1, 2], ids=["no-supervisor", "no-worker", "one-worker"])
def test_a_process_that_the_user_may_not_have_is_refused(room: int) -> None:
    """RLIMIT_NPROC, which does not bind root."""
    first, *others = refused("processes", room, "fork")
    assert first == "no process could be started: Resource temporarily unavailable"
    assert f"{room + 1}, and RLIMIT_NPROC (ulimit -u) is {room + 1}" in "\n".join(others)


@pytest.mark.root
@pytest.mark.parametrize(
    ("method", "room"),
    [("fork", 0), ("fork", 1), ("fork", 2), ("spawn", 0), ("spawn", 1), ("portable", 0), ("portable", 1)],
)
def test_a_process_that_the_cgroup_may_not_have_is_refused(method: str, room: int) -> None:
    """pids.max, as a container has it."""
    with pids_cgroup() as directory:
        first, *others = refused(str(directory), room, method)
    assert first == "no process could be started: Resource temporarily unavailable"
    assert f"its pids.max is {room + 1}" in " ".join(" ".join(others).split())


@contextlib.contextmanager
def pids_cgroup() -> Iterator[Path]:
    """A cgroup below that of this process."""
    above = next(
        (found.path for found in directories_of("self", "pids") if (found.path / "cgroup.procs").exists()), None
    )
    if above is None:
        pytest.skip("needs a pids cgroup, and there is none to be seen here")
    below = above / f"holdfast-test-{os.getpid()}-{next(_numbers)}"
    try:
        below.mkdir()
    except OSError as error:
        pytest.skip(f"needs root, and cgroups that may be written to: {error}")
    try:
        if not (below / "pids.max").exists():
            pytest.skip("needs a cgroup whose processes can be limited")
        yield below
    finally:
        wait_until(lambda: is_removed(below), PATIENCE_S, f"rmdir {below}")


def is_removed(directory: Path) -> bool:
    """Its last process may be gone a moment before the cgroup knows."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def test_a_replacement_that_is_refused_once_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """All workers are started anew, the epoch is whole, the incident says why, and stderr has nothing of it."""
    marker, launch = tmp_path / "refuse the next", Forking.launch

    def refuse(self: Forking, who: Identity, keep_out: Iterable[int]) -> Newborn:
        if marker.exists():
            marker.unlink()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return launch(self, who, keep_out)

    monkeypatch.setattr(Forking, "launch", refuse)  # a forked supervisor has it too
    with DataLoader(Numbers(200), 4, num_workers=2, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        batches = [next(iterator)]
        marker.touch()
        os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        batches.extend(iterator)
        assert not marker.exists()
        assert torch.equal(torch.cat(batches), numbers(0, 200, 4))
        assert [incident.done for incident in loader.incidents] == ["restarted"]
        assert "Resource temporarily unavailable" in loader.incidents[0].summary
    assert "Traceback" not in capfd.readouterr().err
