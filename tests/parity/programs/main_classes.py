"""A script whose classes live in __main__: what its loader delivers must be of those very classes.

Usage: main_classes.py START_METHOD. Prints "same" if all is as it should be.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from holdfast import DataLoader


@dataclass
class Item:
    index: int
    values: torch.Tensor


class Pair(NamedTuple):
    first: torch.Tensor
    second: int


class Marked(torch.Tensor):
    pass


class OwnError(Exception):
    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"{index}: {reason}")
        self.index = index


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise OwnError(index, "bad")
        values = torch.full((2,), index)
        return [Item(index, values), Pair(values, index), values.as_subclass(Marked), Item]


def first(batch: list[Any]) -> Any:
    return batch[0]


def check(method: str) -> None:
    iterator = iter(DataLoader(Items(), num_workers=2, collate_fn=first, multiprocessing_context=method))
    for index in range(3):
        item, pair, marked, kind = next(iterator)
        assert type(item) is Item, type(item)
        assert item.index == index
        assert torch.equal(item.values, torch.full((2,), index))
        assert type(pair) is Pair, type(pair)
        assert type(marked) is Marked, type(marked)
        assert kind is Item
    assert _facts_of_error(iterator) == (("3: bad",), 3)
    assert list(iterator) == []


def _facts_of_error(iterator: Any) -> Any:
    try:
        next(iterator)
    except OwnError as error:
        return error.args, error.index
    return None


if __name__ == "__main__":
    check(sys.argv[1])
    print("same")
