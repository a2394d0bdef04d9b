"""Several iterators and loaders at once, in several threads; and a loader where none may be: inside a worker."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import pytest
import torch
from torch.utils.data import Dataset

from helpers import PATIENCE_S, Numbers, numbers
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)

BATCH_SIZE = 4
WIDTH = 1000
BATCHES = 60

T = TypeVar("T")


def new_loader(width: int = WIDTH, **options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(Numbers(BATCHES * BATCH_SIZE, width), batch_size=BATCH_SIZE, num_workers=2, **options)


def expected(batch: int, width: int = WIDTH) -> torch.Tensor:
    return numbers(batch * BATCH_SIZE, BATCH_SIZE, width)


def in_thread(function: Callable[[], T]) -> T:
    """Run in a thread that has ended when this returns."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    result = future.result(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    return result


def take(iterator: Iterator[torch.Tensor], first: int, count: int | None = None) -> int:
    """Check `count` batches (or all that are left) against their values. Returns the number of the next one."""
    number = first - 1
    for number, batch in enumerate(itertools.islice(iterator, count), start=first):
        assert torch.equal(batch, expected(number))
    return number + 1


def test_two_iterators_of_one_loader_each_give_a_whole_epoch() -> None:
    """Interleaved unevenly, each iterator has its own workers, batches and order."""
    with new_loader() as loader:
        first, second = iter(loader), iter(loader)
        for step in range(20):
            take(first, step, 1)
            take(second, 2 * step, 2)
        assert take(first, 20) == BATCHES
        assert take(second, 40) == BATCHES


def test_an_iterator_that_is_dropped_leaves_the_other_one_alone() -> None:
    """One of two iterators of a loader goes in mid-epoch; the other gives its whole epoch."""
    with new_loader() as loader:
        first, second = iter(loader), iter(loader)
        take(first, 0, 5)
        take(second, 0, 5)
        kept = next(first)
        del first
        assert take(second, 5) == BATCHES
        assert torch.equal(kept, expected(5))


def test_two_loaders_at_once_each_give_their_own_batches() -> None:
    """Loaders of different widths, zipped, as a user of paired data does."""
    with new_loader(width=10) as narrow, new_loader(width=5000) as wide:
        number = -1
        for number, (one, other) in enumerate(zip(narrow, wide, strict=True)):
            assert torch.equal(one, expected(number, 10))
            assert torch.equal(other, expected(number, 5000))
        assert number == BATCHES - 1


def test_a_loader_inside_the_loop_of_another_gives_whole_epochs() -> None:
    """A validation epoch within a training epoch, many times."""
    with new_loader() as training, new_loader() as validation:
        for number, batch in enumerate(training):
            if number % 20 == 10:
                assert take(iter(validation), 0) == BATCHES
            assert torch.equal(batch, expected(number))


def test_an_epoch_runs_in_a_thread() -> None:
    """A loader built in the main thread and iterated in another."""
    with new_loader() as loader:
        assert in_thread(lambda: take(iter(loader), 0)) == BATCHES


def test_two_threads_each_iterate_a_loader_at_once() -> None:
    """Two epochs at the same time in two threads, each one whole."""
    with new_loader() as first, new_loader() as second:
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda loader=loader: results.append(take(iter(loader), 0)))
            for loader in (first, second)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert results == [BATCHES, BATCHES]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_iterator_lives_on_when_the_thread_that_made_it_ends(method: str) -> None:
    """Started in one thread, continued in a second and finished in the main one: the workers follow the process."""
    with new_loader(multiprocessing_context=method) as loader:
        iterator = in_thread(lambda: iter(loader))
        assert in_thread(lambda: take(iterator, 0, 5)) == 5
        assert in_thread(lambda: take(iterator, 5, 25)) == 30
        assert take(iterator, 30) == BATCHES


def test_persistent_workers_live_on_when_the_thread_that_started_them_ends() -> None:
    """The first epoch in a thread, the next ones in others."""
    with new_loader(persistent_workers=True) as loader:
        for _ in range(3):
            assert in_thread(lambda: take(iter(loader), 0)) == BATCHES


class NestedLoader(Dataset[torch.Tensor]):
    """Each sample is an epoch of another loader with workers: what torch does not allow in a worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.cat(list(DataLoader(Numbers(4), num_workers=1)))


def test_a_loader_inside_a_worker_raises_what_torch_raises() -> None:
    """Workers are daemonic processes, and those have no children: torch's error, type and text."""
    with (
        DataLoader(NestedLoader(), num_workers=1) as loader,
        pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"),
    ):
        list(loader)


class NestedInProcess(NestedLoader):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.cat(list(DataLoader(Numbers(4), num_workers=0)))


def test_a_loader_without_workers_inside_a_worker_works() -> None:
    """`num_workers=0` needs no process: allowed anywhere."""
    with DataLoader(NestedInProcess(), num_workers=2) as loader:
        for batch in loader:
            assert torch.equal(batch[0], numbers(0, 4, 4))
