"""Measure one loader's first batch in this fresh process, in the first epoch and in the next, and print both as JSON.

Run by `startup.py` as `python -m benchmarks.first_batch LOADER METHOD WORKERS`. The clock covers `iter(loader)` and the
first `next()`; imports and the dataset come before it, equally for both loaders. The workers are not persistent: every
epoch starts its own, and what the loader keeps from one epoch to the next shows in the second figure.
Runs in: a main process of its own; re-imported by the workers it spawns, so nothing happens at import.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from torch.utils.data import DataLoader

from .consumer import touch
from .loaders import LOADERS, iterating, make_loader
from .workloads import WORKLOADS


def main() -> None:
    """Print {"first_batch_s": ..., "later_batch_s": ...}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("method", choices=("fork", "spawn", "forkserver"))
    parser.add_argument("workers", type=int)
    parser.add_argument("--row", choices=WORKLOADS, default="floats")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[arguments.row]
    loader = make_loader(arguments.loader, workload, workload.make_dataset(), arguments.workers, arguments.method)
    print(json.dumps({"first_batch_s": time_to_first_batch(loader), "later_batch_s": time_to_first_batch(loader)}))


def time_to_first_batch(loader: DataLoader[Any]) -> float:
    """Start an epoch and take its first batch; return the seconds that took. Its workers are ended after that."""
    start = time.perf_counter()
    with iterating(loader) as iterator:
        touch(next(iterator))
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
