"""Gets calls into the workers of a pool, or of map, says "ready" and stays there until a signal comes.

Usage: stay_in_pool.py METHOD STATE FRONT
METHOD: fork | spawn | forkserver | portable. STATE, of the workers: idle | asleep | python loop | C loop; each worker
that is not idle says "stuck". FRONT: pool | map | exit (the main script ends, and the interpreter with it).
Runs in: a child of the test process.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from typing import Any

import holdfast
from helpers import say, stay


def call(state: str) -> None:
    if state != "idle":
        say("stuck")
        stay(state)


def main(method: str, state: str, front: str) -> None:
    is_portable = method == "portable"
    how: dict[str, Any] = {"backend": method} if is_portable else {"mp_context": multiprocessing.get_context(method)}
    if front == "map":
        results = holdfast.map(call, [state] * 2, num_workers=2, **how)
        say("ready")
        list(results)
    else:
        pool = holdfast.ProcessPoolExecutor(2, **how)
        futures = [pool.submit(call, state) for _ in range(2)]
        say("ready")
        if front == "exit":
            return
        if state == "idle":
            [future.result() for future in futures]
            say("idle")
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
