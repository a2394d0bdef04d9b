"""The datasets, samplers and functions of the scenarios, at module level so that they pickle under spawn.

Every value is known from the index alone, except where a dataset is there to draw random numbers or to fail.
Each has a `repr` without an address, because torch's warnings contain it.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

LENGTH = 11
"""Of every map-style dataset of the grid: a prime, so that no batch size divides it."""


class Point(NamedTuple):
    x: torch.Tensor
    y: int


@dataclass
class Record:
    index: int
    values: torch.Tensor


class MapDataset(Dataset[Any]):
    """Sample i is `function(i)`."""

    def __init__(self, function: Callable[[int], Any], length: int = LENGTH) -> None:
        self.function = function
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.function(index)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.function, '__name__', '')}, {self.length})"


def vector(index: int) -> torch.Tensor:
    return torch.arange(index, index + 3, dtype=torch.float32)


def pair(index: int) -> tuple[torch.Tensor, int]:
    return torch.full((2, 2), index), index * index


def mapping(index: int) -> dict[str, Any]:
    return {
        "x": vector(index),
        "y": index,
        "name": f"sample {index}",
        "nested": {"deep": [float(index), vector(-index)]},
    }


def point(index: int) -> Point:
    return Point(vector(index), index)


def array(index: int) -> np.ndarray[Any, Any]:
    return np.arange(index, index + 4, dtype=np.int16).reshape(2, 2)


def text(index: int) -> str:
    return f"text {index}"


class Many(MapDataset):
    """Loads a whole batch in one call; says so in the sample."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.function(index), len(indices)) for index in indices]


class NoManyAfterAll(MapDataset):
    """`__getitems__` is there and None: torch then loads one by one."""

    __getitems__ = None


class Keyed(Dataset[Any]):
    """Indexed by names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> tuple[str, int]:
        return name.upper(), self.names.index(name)


class Unsized(Dataset[Any]):
    def __getitem__(self, index: int) -> int:
        return index


class Lists(Dataset[Any]):
    """With `batch_size=None` the index may be anything: a list, a slice, a tuple."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: Any) -> Any:
        return torch.arange(LENGTH)[index], repr(index)


class Changing(Dataset[Any]):
    """The user changes `offset` between epochs."""

    def __init__(self) -> None:
        self.offset = 0

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index + self.offset


class Counting(Dataset[Any]):
    """Remembers, within one worker, how many samples it has loaded."""

    def __init__(self, length: int = LENGTH) -> None:
        self.length = length
        self.loaded = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.loaded += 1
        return index, self.loaded


def first_part_of_a_split() -> Subset[Any]:
    generator = torch.Generator().manual_seed(5)
    return random_split(MapDataset(pair, 2 * LENGTH), [LENGTH, LENGTH], generator=generator)[0]


MAP_DATASETS: dict[str, Callable[[], Any]] = {
    "tensors": lambda: MapDataset(vector),
    "tuples": lambda: MapDataset(pair),
    "dicts": lambda: MapDataset(mapping),
    "namedtuples": lambda: MapDataset(point),
    "arrays": lambda: MapDataset(array),
    "strings": lambda: MapDataset(text),
    "getitems": lambda: Many(vector),
    "getitems is None": lambda: NoManyAfterAll(vector),
    "TensorDataset": lambda: TensorDataset(torch.arange(LENGTH), torch.arange(2 * LENGTH).reshape(LENGTH, 2) / 7),
    "Subset": lambda: Subset(MapDataset(pair, 3 * LENGTH), range(0, 3 * LENGTH, 3)),
    "random_split": first_part_of_a_split,
    "ConcatDataset": lambda: ConcatDataset([MapDataset(pair, 4), MapDataset(pair, LENGTH - 4)]),
    "StackDataset of tuples": lambda: StackDataset(MapDataset(vector), TensorDataset(torch.arange(LENGTH))),
    "StackDataset of dicts": lambda: StackDataset(x=MapDataset(vector), y=Many(vector)),
    "list": lambda: [vector(index) for index in range(LENGTH)],
    "range": lambda: range(LENGTH),
    "array as dataset": lambda: np.arange(2 * LENGTH, dtype=np.float32).reshape(LENGTH, 2),
    "tensor as dataset": lambda: torch.arange(2 * LENGTH).reshape(LENGTH, 2),
}


# --- samplers -----------------------------------------------------------------------------------------------------


class Odd(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(1, LENGTH, 2))

    def __len__(self) -> int:
        return LENGTH // 2


class Consumed(Sampler[int]):
    """Remembers how far it was read: a loader that reads further ahead than torch is found out."""

    def __init__(self, length: int = 40) -> None:
        self.length = length
        self.consumed = 0

    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            self.consumed += 1
            yield index

    def __len__(self) -> int:
        return self.length


class Eager(Sampler[int]):
    """Draws when it is asked for its iterator, and not at the first index."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(LENGTH).tolist())

    def __len__(self) -> int:
        return LENGTH


class EagerBatches(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        return iter(torch.randperm(LENGTH).split(3))

    def __len__(self) -> int:
        return 4


class WithoutLength(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(LENGTH))


class Bucketed(Sampler[list[int]]):
    """Batches of very different sizes."""

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(range(LENGTH))
        for size in (1, 5, 2, 3):
            yield list(itertools.islice(numbers, size))

    def __len__(self) -> int:
        return 4


Arguments = Callable[[Any], dict[str, Any]]
"""From the dataset to the arguments that choose the indices."""

SAMPLERS: dict[str, Arguments] = {
    "sequential": lambda dataset: {},
    "shuffle": lambda dataset: {"shuffle": True},
    "shuffle=False": lambda dataset: {"shuffle": False},
    "shuffle with generator": lambda dataset: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "SequentialSampler": lambda dataset: {"sampler": SequentialSampler(dataset)},
    "with replacement": lambda dataset: {"sampler": RandomSampler(dataset, replacement=True, num_samples=14)},
    "SubsetRandomSampler": lambda dataset: {"sampler": SubsetRandomSampler([1, 3, 5, 7, 9])},
    "WeightedRandomSampler": lambda dataset: {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0, 4.0], 9)},
    "DistributedSampler": lambda dataset: {"sampler": DistributedSampler(dataset, num_replicas=2, rank=1, seed=4)},
    "a list": lambda dataset: {"sampler": [3, 1, 4, 1, 5, 9, 2, 6]},
    "a class": lambda dataset: {"sampler": Odd()},
    "without length": lambda dataset: {"sampler": WithoutLength()},
    "nothing": lambda dataset: {"sampler": []},
}

BATCH_SAMPLERS: dict[str, Arguments] = {
    "BatchSampler": lambda dataset: {"batch_sampler": BatchSampler(SequentialSampler(dataset), 4, drop_last=True)},
    "lists": lambda dataset: {"batch_sampler": [[0, 1, 2], [3], [4, 5, 6, 7, 8, 9, 10]]},
    "buckets": lambda dataset: {"batch_sampler": Bucketed()},
    "tuples": lambda dataset: {"batch_sampler": [(0, 1), (2, 3)]},
    "shuffled": lambda dataset: {"batch_sampler": BatchSampler(RandomSampler(dataset), 3, drop_last=False)},
}


# --- collate functions --------------------------------------------------------------------------------------------


def as_list(batch: list[Any]) -> list[Any]:
    return list(batch)


def count(batch: list[Any]) -> dict[str, Any]:
    """Not a tensor at all."""
    return OrderedDict(number=len(batch), kinds=[type(sample).__name__ for sample in batch])


def padded(batch: list[Any]) -> torch.Tensor:
    """A tensor that no default collate would make."""
    rows = [torch.arange(1 + number) for number in range(len(batch))]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def same(sample: Any) -> Any:
    return sample


def none(batch: list[Any]) -> None:
    return None


COLLATES: dict[str, dict[str, Any]] = {
    "default": {},
    "default by name": {"collate_fn": torch.utils.data.default_collate},
    "list": {"collate_fn": as_list},
    "dict": {"collate_fn": count},
    "padded": {"collate_fn": padded},
    "none": {"collate_fn": none},
}
