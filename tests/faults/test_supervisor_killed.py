"""The supervisor may die, stop or lag: the main process notices, and the epoch goes on. Closing stays bounded."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

import stops_on_import
from helpers import CLOSE_DEADLINE_S, PATIENCE_S, Numbers, numbers, wait_until, wait_until_ended, worker_pids
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)
soon = pytest.mark.usefixtures("stops_count_soon")

BATCH_SIZE = 4
BATCHES = 60


def supervisor_of(iterator: object) -> int:
    """The parent of the workers, which must be another process than this one."""
    parents = {psutil.Process(pid).ppid() for pid in worker_pids(iterator)}
    assert len(parents) == 1
    supervisor = parents.pop()
    assert supervisor != os.getpid()
    return supervisor


def check_to_the_end(iterator: Iterator[torch.Tensor], first: int) -> None:
    number = first - 1
    for number, batch in enumerate(iterator, start=first):
        assert torch.equal(batch, numbers(number * BATCH_SIZE, BATCH_SIZE, 4))
    assert number == BATCHES - 1


def new_loader(**options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(BATCHES * BATCH_SIZE), BATCH_SIZE, num_workers=2, **options)


@soon
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_epoch_goes_on_without_its_supervisor(method: str, number: signal.Signals) -> None:
    """Killed or stopped in mid-epoch: every batch comes once, in order; the stopped one is gone at the end."""
    with new_loader(multiprocessing_context=method) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(10)]
        supervisor = supervisor_of(iterator)
        os.kill(supervisor, number)
        check_to_the_end(iterator, 10)
        for position, batch in enumerate(kept):
            assert torch.equal(batch, numbers(position * BATCH_SIZE, BATCH_SIZE, 4))
    wait_until_ended([supervisor])


def test_a_supervisor_that_is_continued_within_ten_seconds_is_not_replaced() -> None:
    """Of the main process's own waiting. It goes on with the same workers, and nothing is noted."""
    with new_loader() as loader:
        iterator = iter(loader)
        for _ in range(10):
            next(iterator)
        supervisor = supervisor_of(iterator)
        os.kill(supervisor, signal.SIGSTOP)
        wait_until(lambda: psutil.Process(supervisor).status() == psutil.STATUS_STOPPED, PATIENCE_S, "the stop")
        for _ in range(10):
            iterator._backend._check_pulse(1.0)
        assert supervisor_of(iterator) == supervisor
        os.kill(supervisor, signal.SIGCONT)
        check_to_the_end(iterator, 10)
        assert loader.stats().supervisor_restarts == 0
        assert list(loader.incidents) == []


@pytest.mark.parametrize("step", ["short", "long"])
def test_the_epoch_goes_on_when_supervisor_and_workers_are_killed_together(step: str) -> None:
    """Nobody of the old set is left: the main process starts a new one, and what was finished is kept.

    In a short training step the main process sees them die one by one; in a long one, all at once afterwards.
    """
    with new_loader() as loader:
        iterator = iter(loader)
        for _ in range(10):
            next(iterator)
        pids = [supervisor_of(iterator), *worker_pids(iterator)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if step == "long":
            wait_until_ended(pids)
        check_to_the_end(iterator, 10)


@soon
@pytest.mark.long
def test_the_epoch_goes_on_when_a_worker_dies_under_a_stopped_supervisor() -> None:
    """The one who should replace the worker is silent: the main process sees both."""
    with new_loader() as loader:
        iterator = iter(loader)
        for _ in range(10):
            next(iterator)
        supervisor = supervisor_of(iterator)
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        check_to_the_end(iterator, 10)
    wait_until_ended([supervisor])


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_closing_without_a_supervisor_is_bounded(number: signal.Signals) -> None:
    """Close ends supervisor and workers itself if it must."""
    loader = new_loader()
    iterator = iter(loader)
    next(iterator)
    processes = [supervisor_of(iterator), *worker_pids(iterator)]
    os.kill(processes[0], number)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    wait_until_ended(processes)


def test_persistent_workers_survive_their_supervisors_death_between_epochs() -> None:
    """The next epoch is whole, with a new supervisor and new workers."""
    with new_loader(persistent_workers=True) as loader:
        for _ in range(3):
            iterator = iter(loader)
            check_to_the_end(iterator, 0)
            os.kill(supervisor_of(iterator), signal.SIGKILL)


class _DiesStartingOnce:
    """A worker_init_fn: the worker that finds `marker` exits, and takes it away."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self, worker_id: int) -> None:
        if self.marker.exists():
            self.marker.unlink()
            os._exit(1)


def test_a_new_supervisor_knows_that_workers_were_ready_before(tmp_path: Path) -> None:
    """A worker that dies as it starts is started again if one was ready before, under whichever supervisor.

    Found by `make chaos`: the second supervisor of an iterator took such a death for a broken init function.
    """
    dies_once = _DiesStartingOnce(tmp_path / "marker")
    with DataLoader(Numbers(BATCHES * BATCH_SIZE), BATCH_SIZE, num_workers=1, worker_init_fn=dies_once) as loader:
        iterator = iter(loader)
        next(iterator)
        dies_once.marker.touch()
        supervisor = supervisor_of(iterator)
        os.kill(supervisor, signal.SIGKILL)
        wait_until_ended([supervisor])
        check_to_the_end(iterator, 1)
        assert not dies_once.marker.exists()


@soon
@pytest.mark.long
def test_a_supervisor_that_is_stopped_while_it_imports_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not tick as long as it imports, which may take minutes; but one that was stopped will never be done."""
    marker = tmp_path / "stop the next process that imports it"
    monkeypatch.setenv(stops_on_import.MARKER, str(marker))
    marker.touch()
    dataset = stops_on_import.FromSuchModule(BATCHES * BATCH_SIZE)
    with DataLoader(dataset, BATCH_SIZE, num_workers=1, multiprocessing_context="spawn") as loader:
        check_to_the_end(iter(loader), 0)
        assert not marker.exists()
        assert loader.stats().supervisor_restarts == 1
