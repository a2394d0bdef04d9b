"""A user's script without `if __name__ == "__main__":`, which runs calls: a new interpreter runs it again.

Usage: no_main_guard_calls.py pool | map | spawn, spawn | forkserver | portable
Runs in: a child of the test process, and the processes it starts.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import holdfast

front, method = sys.argv[1:]
how: dict[str, Any] = {"backend": "portable"}
if method != "portable":
    how = {"start_method": method} if front == "spawn" else {"mp_context": multiprocessing.get_context(method)}


def double(number: int) -> int:
    return 2 * number


try:
    if front == "pool":
        with holdfast.ProcessPoolExecutor(2, **how) as pool:
            pool.submit(double, 3).result()
    elif front == "map":
        list(holdfast.map(double, range(3), num_workers=2, **how))
    else:
        holdfast.spawn(double, nprocs=2, **how)
except holdfast.WorkerError as error:
    print(type(error).__name__, error.incident.cause if error.incident else "no incident", error, sep="\n")
