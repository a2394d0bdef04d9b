"""Datasets for `holdfast tune`: that wait, compute, fail in every way, and iterate.

Runs in: the process of that command, and its workers.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Waiting(Dataset[tuple[torch.Tensor, int]]):
    """As one that reads from a network. It prints, as datasets do."""

    wait_s = 0.02

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        print("loading", index)
        time.sleep(self.wait_s)
        return torch.zeros(256), index


class Computing(Waiting):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        until = time.process_time() + 0.002
        while time.process_time() < until:
            pass
        return torch.zeros(256), index


class Failing(Waiting):
    """Some raise, one crashes."""

    wait_s = 0.001

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 20 == 7:
            raise ValueError("not a [bold]JPEG[/bold] \x1b[31mfile")
        if index % 100 == 33:
            ctypes.string_at(0)
        return super().__getitem__(index)


class NoneGood(Waiting):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        raise ValueError("none of them")


class Hanging(Waiting):
    """One of a few: it is soon drawn."""

    wait_s = 0.001

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 80 == 0:
            time.sleep(3600)
        return super().__getitem__(index)


class Ragged(Waiting):
    """Default collate cannot make a batch of them."""

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(index)


class Hungry(Waiting):
    """64 MB while it loads, of which a sample keeps little."""

    wait_s = 0.0
    floats = 16_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        torch.ones(self.floats)
        return super().__getitem__(index)


class VeryHungry(Hungry):
    """300 MB: more than what a forked worker has of its own because of all that its parent did before."""

    floats = 75_000_000


class Same(IterableDataset[int]):
    """Every worker gives all of it."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


class Sharded(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 4000, step))


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        number = 0 if info is None else info.id * 1_000_000
        while True:
            time.sleep(0.001)
            number += 1
            yield number


class Nothing(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


class Breaking(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(40)
        raise ValueError("a broken file")


class OnlyIterates:
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Empty(Waiting):
    def __len__(self) -> int:
        return 0


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


def listed(samples: list[Any]) -> list[Any]:
    return samples


number = 1
