"""Datasets for `holdfast bench`: good, random, and with samples that fail.

Runs in: the child processes of that command, and their workers.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

CLASSES = list({"bird", "cat", "dog", "fish", "frog", "hen", "ox", "sheep"})
"""In the order of a set: another one in every Python, unless PYTHONHASHSEED says which."""


class Good(Dataset[tuple[torch.Tensor, Any]]):
    """With random numbers, which are the same for the same seed. It prints, as datasets do."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        print("loading", index)
        return torch.rand(8), f"{CLASSES[index % len(CLASSES)]} {index}"


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(64))


class Unsteady(Good):
    """Never the same twice."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        return torch.rand(8), int.from_bytes(os.urandom(4), "little")


class Bad(Good):
    """One raises, a later one crashes."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        if index == 5:
            raise ValueError("not a [bold]JPEG[/bold] \x1b[31mfile")
        if index == 40:
            ctypes.string_at(0)
        return super().__getitem__(index)


class Large(Good):
    """Batches that are worked on for longer than a worker takes to die meanwhile."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        if index == 40:
            ctypes.string_at(0)
        return torch.ones(1 << 20), index


class Hangs(Good):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        if index == 5:
            time.sleep(3600)
        return super().__getitem__(index)


def collated(samples: list[Any]) -> dict[str, int]:
    return {"count": len(samples)}


number = 1
