"""Datasets that look at the worker they run in: random numbers, worker info, the process itself.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from .datasets import LENGTH, MapDataset, same


def draws() -> tuple[Any, ...]:
    """Each source of random numbers that a worker seeds, twice."""
    return (
        *(torch.rand(2).tolist() + torch.randint(1 << 40, (1,)).tolist()),
        random.random(),
        random.getrandbits(60),
        float(np.random.rand()),
        int(np.random.randint(1 << 30)),
        torch.initial_seed(),
    )


class Drawing(MapDataset):
    def __init__(self, length: int = LENGTH) -> None:
        super().__init__(same, length)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (index, *draws())


class DrawingStream(IterableDataset[Any]):
    def __init__(self, length: int = 7) -> None:
        self.length = length

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for index in range(self.length):
            yield (index, *draws())


def draw_first(worker_id: int) -> None:
    """A worker_init_fn that uses up random numbers, and reseeds numpy as many users do."""
    draws()
    np.random.seed(torch.initial_seed() % 2**32)


class Informed(MapDataset):
    """Says what `get_worker_info()` says."""

    def __init__(self, length: int = LENGTH) -> None:
        super().__init__(same, length)

    def __getitem__(self, index: int) -> Any:
        return index, worker_info(self)


def worker_info(dataset: Any) -> Any:
    info = get_worker_info()
    if info is None:
        return None
    fields = (info.id, info.num_workers, info.seed, info.rng, info.worker_method)
    return (*fields, type(info).__module__, type(info).__name__, info.dataset is dataset)


class Surroundings(Dataset[Any]):
    """What a worker process looks like from inside."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        process = multiprocessing.current_process()
        return {
            "threads": torch.get_num_threads(),
            "daemon": process.daemon,
            "kind of name": process.name.rstrip("0123456789"),
            "is a process of multiprocessing": isinstance(process, multiprocessing.process.BaseProcess),
            "has a parent": multiprocessing.parent_process() is not None,
            "parent lives": getattr(multiprocessing.parent_process(), "is_alive", bool)(),
            "thread name": Path("/proc/self/comm").read_text(),
            "main thread": threading.current_thread() is threading.main_thread(),
            "SIGINT": signal.getsignal(signal.SIGINT),
            "SIGTERM": signal.getsignal(signal.SIGTERM),
            "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "grad mode": torch.is_grad_enabled(),
            "default dtype": torch.get_default_dtype(),
            "sharing": torch.multiprocessing.get_sharing_strategy(),
            "start method": multiprocessing.get_start_method(),
            "working directory": Path.cwd(),
            "environment": dict(os.environ),
            "niceness": os.nice(0),
            "cores": sorted(os.sched_getaffinity(0)),
            "standard input": os.fstat(0).st_rdev,
            "umask": _umask(),
        }


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


class Nested(Dataset[Any]):
    """Each sample comes from a loader with workers of its own."""

    def __init__(self, loader_class: type[Any]) -> None:
        self.loader_class = loader_class

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[Any]:
        return list(self.loader_class(range(3), num_workers=1))


def set_marker(worker_id: int) -> None:
    """A worker_init_fn that changes the dataset of its worker."""
    info = get_worker_info()
    assert info is not None
    info.dataset.marker = f"worker {worker_id}"  # type: ignore[attr-defined]


class Marked(MapDataset):
    marker = "never set"

    def __init__(self) -> None:
        super().__init__(same)

    def __getitem__(self, index: int) -> str:
        return f"{index} {self.marker}"


class Callback:
    """A worker_init_fn that is an object, with state, and keeps it."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __call__(self, worker_id: int) -> None:
        torch.manual_seed(self.offset + worker_id)
