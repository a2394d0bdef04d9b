"""Datasets, samplers and functions that fail, or wait.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler

from .datasets import MapDataset, same


class MessageError(Exception):
    """Its own class, one argument."""


class FieldError(Exception):
    """torch asks for a class attribute `message`, and then passes the message by that name."""

    message = "a field is wrong"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("sample 5 is bad"),
    "KeyError": lambda: KeyError("no such key"),
    "IndexError": lambda: IndexError("list index out of range"),
    "OSError": lambda: OSError(5, "Input/output error"),
    "FileNotFoundError": lambda: FileNotFoundError(2, "No such file or directory", "/data/5.jpg"),
    "RuntimeError": lambda: RuntimeError("several\nlines of\ntext"),
    "AssertionError": AssertionError,
    "MemoryError": MemoryError,
    "NotImplementedError": lambda: NotImplementedError("later"),
    "MessageError": lambda: MessageError("of its own class"),
    "FieldError": lambda: FieldError("with a field"),
    "TimeoutError": lambda: TimeoutError("timed out by the dataset itself"),
    "BufferError": lambda: BufferError("full"),
}


class Failing(MapDataset):
    """Some samples raise."""

    def __init__(self, error: str, at: Sequence[int] = (5,), length: int = 20) -> None:
        super().__init__(same, length)
        self.error = error
        self.at = set(at)

    def __getitem__(self, index: int) -> int:
        if index in self.at:
            raise ERRORS[self.error]()
        return index


class FailingMany(Failing):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class FailingLength(MapDataset):
    def __len__(self) -> int:
        raise LookupError("the index file is gone")


def failing_collate(batch: list[Any]) -> Any:
    if 5 in batch:
        raise ArithmeticError("cannot collate 5")
    return torch.tensor(batch)


def failing_init(worker_id: int) -> None:
    raise ConnectionError(f"worker {worker_id} cannot connect")


def failing_init_of_one(worker_id: int) -> None:
    if worker_id == 1:
        raise ConnectionError("worker 1 cannot connect")


class FailingSampler(Sampler[int]):
    """Three indices, then an exception; the generator ends with it."""

    def __iter__(self) -> Iterator[int]:
        yield from (0, 1, 2)
        raise ZeroDivisionError("the sampler failed")

    def __len__(self) -> int:
        return 6


class FailingSamplerIter(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        raise ZeroDivisionError("the sampler failed at once")

    def __len__(self) -> int:
        return 6


class Gated(Dataset[Any]):
    """Sample `closed` waits at a gate that the test opens."""

    def __init__(self, closed: int, length: int = 8) -> None:
        self.gate = multiprocessing.get_context("fork").Event()
        self.closed = closed
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.closed and not self.gate.wait(60):
            raise AssertionError("nobody opened the gate")
        return index
