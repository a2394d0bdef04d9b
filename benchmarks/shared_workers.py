"""Measure the workers of one loader whose dataset holds much data, plain or shared, in this fresh process.

Run by `sharing.py` as `python -m benchmarks.shared_workers LOADER METHOD DATA HOW`. Prints, as JSON, the seconds from
`iter(loader)` until every worker has given a batch, and with --touch the mean unique memory (USS) of a worker after
each of them has looked at all of the data. Making and sharing the data comes before the clock.
Runs in: a main process of its own; re-imported by the workers it spawns, so nothing happens at import.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from .loaders import LOADERS, iterating, loader_class
from .worker_memory import uss

WORKERS = 4
LENGTH = 1000
PAGE_ITEMS = 512  # of eight bytes
ARRAY_BYTES = 10**9
STRINGS = 5_000_000


class Looking(Dataset[int]):
    """Every sample looks at all of the data, or at none of it."""

    def __init__(self, data: Any, touch: bool) -> None:
        self.data = data
        self.touch = touch

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return look_at(self.data) if self.touch else len(self.data)


def look_at(data: Any) -> int:
    """Touch every page of an array, every item of a list."""
    if isinstance(data, np.ndarray):
        return int(data[::PAGE_ITEMS].sum())
    return sum(map(len, data))


def array() -> Any:
    return np.ones(ARRAY_BYTES // 8)


def strings() -> Any:
    return [f"{index:016x}.jpg" for index in range(STRINGS)]


DATA: dict[str, Callable[[], Any]] = {"array": array, "strings": strings, "nothing": lambda: np.ones(1)}


def main() -> None:
    """Print {"start_s": ..., "worker_bytes": ...}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("method", choices=("fork", "spawn", "forkserver", "portable"))
    parser.add_argument("data", choices=DATA)
    parser.add_argument("how", choices=("plain", "shared"))
    parser.add_argument("--touch", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = DATA[arguments.data]()
    if arguments.how == "shared":
        import holdfast

        data = holdfast.share(data)
    print(json.dumps(measure(make_loader(arguments, Looking(data, arguments.touch)))))


def make_loader(arguments: argparse.Namespace, dataset: Dataset[int]) -> DataLoader[Any]:
    """Return the loader; portable is a backend, the others are start methods."""
    is_portable = arguments.method == "portable"
    how: dict[str, Any] = {"backend": "portable"} if is_portable else {"multiprocessing_context": arguments.method}
    return loader_class(arguments.loader)(dataset, num_workers=WORKERS, prefetch_factor=1, **how)


def measure(loader: DataLoader[Any]) -> dict[str, float]:
    """Take two batches of each worker; they come in turn."""
    start = time.perf_counter()
    with iterating(loader) as iterator:
        for _ in range(WORKERS):
            next(iterator)
        start_s = time.perf_counter() - start
        for _ in range(WORKERS):
            next(iterator)
        workers: Any = iterator
        return {"start_s": start_s, "worker_bytes": fmean(uss(psutil.Process(one.pid)) for one in workers._workers)}


if __name__ == "__main__":
    main()
