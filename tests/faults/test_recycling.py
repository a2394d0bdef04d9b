"""Workers that are replaced between batches: nothing is lost, repeated or drawn otherwise, and none is an incident."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from helpers import Numbers
from holdfast import DataLoader
from waits import PATIENCE_S

pytestmark = pytest.mark.timeout(120)

LENGTH = 24
METHODS = ["fork", "spawn", "forkserver", "portable"]


class Drawing(Dataset[torch.Tensor]):
    """A sample is its index, random numbers, and the process that drew them."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = [np.random.standard_normal(), float(torch.rand(())), float(torch.randn(3).sum())]
        return torch.tensor([index, *drawn, os.getpid()], dtype=torch.float64)


class Stream(IterableDataset[torch.Tensor]):
    """The same, each worker's share of it."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        return (Drawing()[index] for index in range(info.id, LENGTH, info.num_workers))


class StatefulStream(IterableDataset[torch.Tensor]):
    """The same, which says where it is."""

    def __init__(self) -> None:
        self.done = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        for index in range(info.id, LENGTH, info.num_workers)[self.done :]:
            self.done += 1
            yield Drawing()[index]
        self.done = 0

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}


def run(loader: Any) -> tuple[list[list[list[float]]], list[set[float]]]:
    """The rows of two epochs, in order, without the processes, and these."""
    torch.manual_seed(11)
    epochs = [torch.cat(list(loader)) for _ in range(2)]
    return [epoch[:, :-1].tolist() for epoch in epochs], [set(epoch[:, -1].tolist()) for epoch in epochs]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [Drawing, Stream, StatefulStream])
def test_batches_and_random_numbers_are_torchs(kind: Any, persistent: bool, method: str) -> None:
    """Whatever the worker that draws them; and no process makes more batches than it may."""
    options: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "persistent_workers": persistent}
    expected, _ = run(torch.utils.data.DataLoader(kind(), **options))
    with DataLoader(kind(), **options, recycle_after=2, **how(method)) as loader:
        found, processes = run(loader)
        assert found == expected
        assert list(loader.incidents) == []
        stats = loader.stats()
    assert all(len(pids) >= LENGTH / 2 / 2 for pids in processes)
    assert stats.recycled >= sum(map(len, processes)) - 4
    assert stats.restarts == 0


@pytest.mark.parametrize("in_order", [True, pytest.param(False, marks=pytest.mark.long)])
def test_nothing_is_lost_or_repeated_when_every_batch_has_a_new_worker(in_order: bool) -> None:
    """More often than a worker may be restarted: it counts against nothing."""
    with DataLoader(
        Numbers(60, 1), 1, num_workers=3, recycle_after=1, in_order=in_order, max_restarts=0, max_retries=0
    ) as loader:
        found = [int(batch[0, 0]) for batch in loader]
        stats = loader.stats()
    assert sorted(found) == list(range(60))
    assert found == sorted(found) or not in_order
    assert stats.recycled >= 57
    assert stats.restarts == 0


class Lingering(Dataset[int]):
    """Its workers do not come to an end by themselves."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        atexit.register(time.sleep, 2 * PATIENCE_S)
        from multiprocessing import util

        util.Finalize(None, time.sleep, args=(2 * PATIENCE_S,), exitpriority=100)
        return index


@pytest.mark.long
def test_a_worker_that_does_not_leave_is_made_to() -> None:
    """An exit handler of the user's that hangs must not hang the epoch."""
    began = time.monotonic()
    with DataLoader(Lingering(), 4, num_workers=1, recycle_after=2) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert list(loader.incidents) == []
        assert loader.stats().recycled == 1
    assert time.monotonic() - began < PATIENCE_S
