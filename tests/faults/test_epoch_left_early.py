"""A worker is lost around the end of an epoch that was left early, or before the first batch of one.

torch is the oracle: workers that stay finish what they were given of the old epoch, and its random numbers come before
those of the new one. Found by `make chaos`, and what it led to.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader as StockLoader
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from helpers import DiesAlways, worker_pids
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(60)

LENGTH = 32
SLOW_S = 0.01


def sample(index: int) -> torch.Tensor:
    time.sleep(SLOW_S)
    return torch.tensor([index, random.randrange(1000)])


class Map(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        return sample(index)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        yield from map(sample, range(info.id, LENGTH, info.num_workers))


class EagerlyShuffledStream(IterableDataset[torch.Tensor]):
    """Not a generator: its order is drawn when the epoch begins, not with the first element."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        order = list(range(info.id, LENGTH, info.num_workers))
        random.shuffle(order)
        return map(sample, order)


def no_kill(iterator: Any) -> None:
    """What torch's loader is left in peace with."""


def kill_worker(iterator: Any) -> None:
    os.kill(worker_pids(iterator)[0], signal.SIGKILL)


def kill_supervisor(iterator: Any) -> None:
    os.kill(psutil.Process(worker_pids(iterator)[0]).ppid(), signal.SIGKILL)


def leave_an_epoch(loader: Any, before: Callable[[Any], None], after: Callable[[Any], None]) -> list[Any]:
    """Three batches of an epoch, then two whole epochs; `before` and `after` are called around the leaving."""
    torch.manual_seed(5)
    iterator = iter(loader)
    delivered = [next(iterator).tolist() for _ in range(3)]
    before(iterator)
    iterator = iter(loader)
    after(iterator)
    delivered += [batch.tolist() for batch in iterator]
    return delivered + [batch.tolist() for batch in loader]


ARGUMENTS: dict[str, Any] = {
    "batch_size": 2,
    "num_workers": 2,
    "prefetch_factor": 4,
    "persistent_workers": True,
    "multiprocessing_context": "fork",
}


@pytest.mark.parametrize("dataset", [Map(), Stream(), EagerlyShuffledStream()], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("kill", [kill_worker, kill_supervisor])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_epoch_after_one_that_was_left_is_whole(
    dataset: Dataset[torch.Tensor], kill: Callable[[Any], None], when: str
) -> None:
    """What a lost worker had in hand of the old epoch takes nothing from the new one, and its numbers are drawn."""
    expected = leave_an_epoch(StockLoader(dataset, **ARGUMENTS), no_kill, no_kill)
    kills = (kill, no_kill) if when == "before" else (no_kill, kill)
    with DataLoader(dataset, **ARGUMENTS, max_retries=5) as loader:
        assert leave_an_epoch(loader, *kills) == expected


def test_what_an_iterable_draws_as_it_begins_is_drawn_again_by_a_replacement() -> None:
    """Killed in the first unit of its second epoch: the order is drawn again, and numbers go on from there."""

    def two_epochs(loader: Any, kill: Callable[[Any], None]) -> list[Any]:
        torch.manual_seed(5)
        delivered = [batch.tolist() for batch in loader]
        iterator = iter(loader)
        kill(iterator)
        return delivered + [batch.tolist() for batch in iterator]

    expected = two_epochs(StockLoader(EagerlyShuffledStream(), **ARGUMENTS), no_kill)
    with DataLoader(EagerlyShuffledStream(), **ARGUMENTS, max_retries=5) as loader:
        assert two_epochs(loader, kill_worker) == expected


class DiesTwice(Stream):
    """The first two workers that come to element 20 die; `deaths` counts them."""

    def __init__(self, deaths: Path) -> None:
        self.deaths = deaths

    def __iter__(self) -> Iterator[torch.Tensor]:
        for element in super().__iter__():
            if element[0] == 20 and self.deaths.stat().st_size < 2:
                with self.deaths.open("ab") as file:
                    file.write(b"x")
                os.kill(os.getpid(), signal.SIGKILL)
            yield element


def test_an_element_that_kills_in_an_epoch_that_was_left_ends_nothing_of_the_next(tmp_path: Path) -> None:
    """It is given up after its second worker, and the next epoch is whole all the same."""
    deaths = tmp_path / "deaths"
    deaths.touch()
    with DataLoader(DiesTwice(deaths), **{**ARGUMENTS, "prefetch_factor": LENGTH // 4}) as loader:
        iterator = iter(loader)
        next(iterator)
        indices = sorted(int(index) for batch in loader for index in batch[:, 0])
    assert indices == list(range(LENGTH))
    assert deaths.stat().st_size == 2


def test_a_bad_sample_of_an_epoch_that_was_left_is_not_listed_in_the_next() -> None:
    """Nobody waits for it: it is listed when the next epoch asks for it, once, with the batch it belongs to."""
    dataset = DiesAlways(8, 3, "SIGSEGV")
    options: dict[str, Any] = {"num_workers": 1, "prefetch_factor": 4, "persistent_workers": True}
    with DataLoader(dataset, 1, **options, on_error="skip") as loader:
        next(iter(loader))
        assert len(list(loader)) == 7
        assert [(sample.index, sample.epoch, sample.batch) for sample in loader.skipped_samples] == [(3, 1, 3)]
