"""Measure one pool's first result in this fresh process, and print it as JSON.

Run by `pool.py` as `python -m benchmarks.first_result CONTENDER METHOD WORKERS`. The clock runs from making the pool to
the first result; imports come before it, equally for all. Every worker gets a call, so that all are started.
Runs in: a main process of its own; re-imported by the workers it spawns, so nothing happens at import.
"""

from __future__ import annotations

import argparse
import json
import time

from .pool_contenders import CONTENDERS


def main() -> None:
    """Print {"first_result_s": ...}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("method", choices=("fork", "spawn", "forkserver"))
    parser.add_argument("workers", type=int)
    arguments = parser.parse_args()
    import holdfast.pool.executor  # noqa: F401  (before the clock, for all of them)

    from .pool_functions import torch_version

    start = time.perf_counter()
    with CONTENDERS[arguments.contender](arguments.workers, arguments.method) as pool:
        results = iter(pool.map(torch_version, range(arguments.workers)))
        next(results)
        print(json.dumps({"first_result_s": time.perf_counter() - start}))
        list(results)


if __name__ == "__main__":
    main()
