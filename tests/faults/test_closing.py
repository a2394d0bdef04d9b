"""Every way to leave an epoch before its end, in the process that goes on afterwards: bounded, quiet, nothing left.

That nothing is left (processes, descriptors, names, threads) is checked after every test; here the workers' end is
waited for as well.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from multiprocessing.util import Finalize
from pathlib import Path

import psutil
import pytest
import torch

from helpers import (
    CLOSE_DEADLINE_S,
    PATIENCE_S,
    STUCK,
    Numbers,
    Stuck,
    is_running,
    numbers,
    wait_until,
    wait_until_ended,
    worker_pids,
)
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)

LENGTH = 200


def new_loader(**options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(LENGTH), batch_size=4, num_workers=2, **options)


def whole_epoch(loader: DataLoader[torch.Tensor]) -> bool:
    return torch.equal(torch.cat(list(loader)), numbers(0, LENGTH, 4))


def test_an_early_break_ends_the_workers() -> None:
    """`break` drops the iterator: its workers end, and the next epoch is whole."""
    loader = new_loader()
    others = set(psutil.Process().children(recursive=True))  # multiprocessing's own, from earlier tests
    for _ in range(3):
        pids = []
        for batch in loader:
            pids = [child.pid for child in psutil.Process().children(recursive=True) if child not in others]
            assert torch.equal(batch, numbers(0, 4, 4))
            break
        assert len(pids) >= 2
        wait_until_ended(pids)
    assert whole_epoch(loader)


def test_an_exception_in_the_training_loop_ends_the_workers() -> None:
    """The traceback keeps the iterator until it is dropped; then the workers end, and the next epoch is whole."""
    loader = new_loader()
    pids: list[int] = []

    def train() -> None:
        iterator = iter(loader)
        pids.extend(worker_pids(iterator))
        for _ in iterator:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    gc.collect()
    wait_until_ended(pids)
    assert whole_epoch(loader)


def test_deleting_the_iterator_in_mid_epoch_ends_the_workers() -> None:
    """No close, no collector: the last reference is enough."""
    loader = new_loader()
    iterator = iter(loader)
    kept = next(iterator)
    pids = worker_pids(iterator)
    assert all(map(is_running, pids))
    gc.disable()
    try:
        del iterator
        wait_until_ended(pids)
    finally:
        gc.enable()
    assert torch.equal(kept, numbers(0, 4, 4))


def test_deleting_the_loader_with_persistent_workers_ends_them() -> None:
    """The loader holds the iterator; when the loader goes, so do the workers."""
    loader = new_loader(persistent_workers=True)
    assert whole_epoch(loader)
    pids = worker_pids(loader._iterator)
    assert all(map(is_running, pids))
    del loader
    gc.collect()
    wait_until_ended(pids)


def test_an_iterator_in_a_reference_cycle_is_closed_by_the_collector() -> None:
    """The collector may run anywhere; the workers end all the same."""
    loader = new_loader()
    iterator = iter(loader)
    next(iterator)
    pids = worker_pids(iterator)
    cycle: list[object] = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    gc.collect()
    wait_until_ended(pids)


@pytest.mark.parametrize("persistent", [False, True], ids=["workers-per-epoch", "persistent-workers"])
def test_close_in_mid_epoch_ends_the_workers_and_may_be_repeated(persistent: bool) -> None:
    """The first close ends the workers before it returns; a second and a third do nothing."""
    loader = new_loader(persistent_workers=persistent)
    iterator = iter(loader)
    kept = next(iterator)
    pids = worker_pids(iterator)
    loader.close()
    assert not any(map(is_running, pids))
    loader.close()
    loader.close()
    assert torch.equal(kept, numbers(0, 4, 4))


def test_close_ends_every_iterator_of_the_loader() -> None:
    """Two iterators at once, one finished, one dropped: close ends what is left of them."""
    loader = new_loader()
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    pids = worker_pids(first) + worker_pids(second)
    loader.close()
    assert not any(map(is_running, pids))


def test_an_iterator_of_a_closed_loader_says_so() -> None:
    """Never silence: a `StopIteration` here would be an epoch cut short without an error."""
    loader = new_loader()
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(Exception, match="closed") as caught:
        next(iterator)
    assert not isinstance(caught.value, StopIteration)


def test_iterating_a_closed_loader_is_an_error_or_a_whole_epoch() -> None:
    """A loader that was closed either starts anew or says that it is closed; nothing in between."""
    loader = new_loader()
    next(iter(loader))
    loader.close()
    try:
        iterator = iter(loader)
    except Exception as error:
        message = str(error)
    else:
        assert torch.equal(torch.cat(list(iterator)), numbers(0, LENGTH, 4))
        message = "not closed any more"
    assert "closed" in message
    loader.close()


def test_close_before_and_between_epochs_is_allowed() -> None:
    """A loader never iterated, or one whose epoch has ended, closes without a word."""
    loader = new_loader()
    loader.close()
    loader = new_loader()
    assert whole_epoch(loader)
    loader.close()
    loader.close()


def test_a_with_block_closes_the_loader() -> None:
    """The loader is its own context manager; leaving the block ends the workers, also by an exception."""
    with new_loader() as loader:
        assert isinstance(loader, DataLoader)
        iterator = iter(loader)
        next(iterator)
        pids = worker_pids(iterator)
    assert not any(map(is_running, pids))
    pids = []

    def train() -> None:
        with new_loader() as loader:
            iterator = iter(loader)
            pids.extend(worker_pids(iterator))
            raise KeyError(next(iterator))

    with pytest.raises(KeyError):
        train()
    assert len(pids) == 2
    assert not any(map(is_running, pids))


def test_shutdown_workers_ends_the_workers() -> None:
    """What other code calls of torch's iterator, called twice."""
    iterator = iter(new_loader())
    next(iterator)
    pids = worker_pids(iterator)
    iterator._shutdown_workers()
    wait_until_ended(pids)
    iterator._shutdown_workers()


class LeavesTraces:
    """A worker_init_fn that leaves a file at the worker's start, and another when it ends by itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, worker_id: int) -> None:
        (self.directory / f"started {worker_id}").touch()
        Finalize(None, (self.directory / f"ended {worker_id}").touch, exitpriority=1)

    def count(self, what: str) -> int:
        return len(list(self.directory.glob(f"{what} *")))


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_workers_that_had_nothing_to_do_end_by_themselves(batches: int, tmp_path: Path) -> None:
    """Closed before the main process has heard of every worker: they run their exit hooks, as torch's do."""
    traces = LeavesTraces(tmp_path)
    with DataLoader(Numbers(6), batch_size=2, num_workers=8, worker_init_fn=traces) as loader:
        iterator = iter(loader)
        for number in range(batches):
            assert torch.equal(next(iterator), numbers(2 * number, 2, 4))
        if batches == 3:
            assert next(iterator, None) is None
    wait_until(lambda: traces.count("ended") == traces.count("started"), CLOSE_DEADLINE_S, "the workers' exit hooks")


@pytest.mark.parametrize(
    "how", [STUCK[0], *(pytest.param(how, marks=pytest.mark.long) for how in STUCK[1:]), "deaf", "stopped"]
)
def test_close_is_bounded_whatever_a_worker_does(how: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Workers asleep, in a loop, in C with the GIL held, deaf to SIGTERM, or stopped: close ends them in time."""
    dataset = Stuck(100, free=100 if how == "stopped" else 4, how=how)
    loader = DataLoader(dataset, batch_size=1, num_workers=2)
    iterator = iter(loader)
    for index in range(4):
        assert torch.equal(next(iterator), numbers(index, 1, 4))
    pids = worker_pids(iterator)
    if how == "stopped":
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    else:
        seen: list[str] = []
        wait_until(lambda: _said(capfd, seen) >= 2, PATIENCE_S, "both workers stuck")
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    wait_until_ended(pids)
    assert not capfd.readouterr().err


def _said(capfd: pytest.CaptureFixture[str], seen: list[str]) -> int:
    seen.append(capfd.readouterr().out)
    return "".join(seen).count("stuck\n")


def test_dropping_an_iterator_with_stuck_workers_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    """As closing, without a call to it."""
    iterator = iter(DataLoader(Stuck(100, free=4, how="asleep"), batch_size=1, num_workers=2))
    for _ in range(4):
        next(iterator)
    pids = worker_pids(iterator)
    seen: list[str] = []
    wait_until(lambda: _said(capfd, seen) >= 2, PATIENCE_S, "both workers stuck")
    start = time.monotonic()
    del iterator
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    wait_until_ended(pids)
