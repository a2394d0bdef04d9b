"""Measure one loader's first batch once, in this fresh process, and print it as JSON.

Run by `startup.py` as `python -m benchmarks.first_batch LOADER METHOD WORKERS`. The clock covers `iter(loader)` and the
first `next()`; imports and the dataset come before it, equally for both loaders.
Runs in: a main process of its own; re-imported by the workers it spawns, so nothing happens at import.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from .consumer import touch
from .loaders import LOADERS, iterating, make_loader
from .workloads import WORKLOADS


def main() -> None:
    """Print {"first_batch_s": ...}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("method", choices=("fork", "spawn", "forkserver"))
    parser.add_argument("workers", type=int)
    parser.add_argument("--row", choices=WORKLOADS, default="floats")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[arguments.row]
    loader = make_loader(arguments.loader, workload, workload.make_dataset(), arguments.workers, arguments.method)
    start = time.perf_counter()
    with iterating(loader) as iterator:
        touch(next(iterator))
        first_batch_s = time.perf_counter() - start
    print(json.dumps({"first_batch_s": first_batch_s}))


if __name__ == "__main__":
    main()
