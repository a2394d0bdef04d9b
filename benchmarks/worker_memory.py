"""Measure the unique memory of one loader's workers in mid-epoch, in this fresh process, and print it as JSON.

Run by `memory.py` as `python -m benchmarks.worker_memory LOADER METHOD WORKERS`. Unique memory (USS) is what would come
free if the process ended. It is read many times between batches, and averaged: it changes with where a
batch is at that moment.
Runs in: a main process of its own; re-imported by the workers it spawns, so nothing happens at import.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import psutil
import torch

from .consumer import touch
from .loaders import LOADERS, iterating, make_loader
from .measure import warm_up_batches
from .workloads import WORKLOADS

READINGS = 25
BATCHES_BETWEEN = 3


def main() -> None:
    """Print the mean USS of a worker, and that of the workers' parent (0 where that is the main process)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("method", choices=("fork", "spawn", "forkserver"))
    parser.add_argument("workers", type=int)
    parser.add_argument("--row", choices=WORKLOADS, default="floats")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[arguments.row]
    loader = make_loader(arguments.loader, workload, workload.make_dataset(), arguments.workers, arguments.method)
    with iterating(loader) as iterator:
        take(iterator, 2 * warm_up_batches(loader))
        readings = [read(iterator) for _ in range(READINGS)]
    workers = [bytes_ for per_worker, _ in readings for bytes_ in per_worker]
    parents = [bytes_ for _, bytes_ in readings]
    print(json.dumps({"worker_bytes": fmean(workers), "parent_bytes": fmean(parents)}))


def take(iterator: Iterator[Any], count: int) -> None:
    """Take and drop some batches."""
    for _ in range(count):
        touch(next(iterator))


def read(iterator: Any) -> tuple[list[int], int]:
    """Take some batches, then read the USS of each worker and of their parent."""
    take(iterator, BATCHES_BETWEEN)
    workers = [psutil.Process(worker.pid) for worker in iterator._workers]
    parents = {worker.ppid() for worker in workers} - {os.getpid()}
    return [uss(worker) for worker in workers], sum(uss(psutil.Process(pid)) for pid in parents)


def uss(process: psutil.Process) -> int:
    """Return the unique memory of a process in bytes."""
    return int(process.memory_full_info().uss)


if __name__ == "__main__":
    main()
