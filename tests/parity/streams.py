"""Iterable datasets: uneven, replicated, counting, failing.

Runs in: the test process and the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import ChainDataset, IterableDataset, get_worker_info


class Uneven(IterableDataset[Any]):
    """Worker w yields `lengths[w]` elements; without workers, all of them."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for worker in range(len(self.lengths)) if info is None else [info.id]:
            for position in range(self.lengths[worker]):
                yield torch.tensor([worker, position])

    def __repr__(self) -> str:
        return f"Uneven{self.lengths}"


class Replicated(IterableDataset[Any]):
    """Every worker yields everything: the mistake that torch warns about once the length was asked for."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))

    def __repr__(self) -> str:
        return f"Replicated({self.length})"


class Chained(ChainDataset):
    def __repr__(self) -> str:
        return "Chained"


class Epochs(IterableDataset[Any]):
    """Counts, within one worker, how often it was iterated."""

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.epoch = -1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.epoch += 1
        return iter([(self.epoch, position) for position in range(self.length)])


class OwnIterator(IterableDataset[Any]):
    """Its iterator survives the exceptions that it raises."""

    def __init__(self, length: int, failing: Sequence[int]) -> None:
        self.length = length
        self.failing = set(failing)
        self.position = 0

    def __iter__(self) -> OwnIterator:
        self.position = 0
        return self

    def __next__(self) -> int:
        self.position += 1
        if self.position > self.length:
            raise StopIteration
        if self.position in self.failing:
            raise ValueError(f"element {self.position} is bad")
        return self.position


class FailingGenerator(IterableDataset[Any]):
    """A plain generator that fails in worker 0 ends there."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        for position in range(6):
            if position == 3 and (info is None or info.id == 0):
                raise OSError(f"stream broke at {position}")
            yield position


class FailingIter(IterableDataset[Any]):
    """Fails before its first element, in worker 0 only."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info is None or info.id == 0:
            raise PermissionError("no access to the stream")
        return iter(range(4))
