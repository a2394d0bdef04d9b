"""Gets into mid-epoch, says "ready" and stays there until a signal comes.

Usage: stay_in_epoch.py METHOD STATE [HANDLER]
METHOD: fork | spawn | forkserver. STATE, of the workers: idle | asleep | python loop | C call | C loop.
In state idle the main process is in a long training step; in the others it waits in `next()`, each worker says "stuck".
HANDLER: "exit on SIGTERM" (a handler that calls sys.exit(5)), "catch" (goes on after Ctrl-C, to a clean end),
"forked child" (a user's child, forked in mid-epoch, lives on: it says "child PID").
Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import signal
import sys

from helpers import Stuck, say
from holdfast import DataLoader

FREE = 8


def main(method: str, state: str, handler: str) -> None:
    if handler == "exit on SIGTERM":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(5))
    free = 1_000_000 if state == "idle" else FREE
    loader = DataLoader(Stuck(free + 100, free, state), batch_size=1, num_workers=2, multiprocessing_context=method)
    try:
        stay(loader, state, handler)
    except KeyboardInterrupt:
        if handler != "catch":
            raise
        say("caught")
        loader.close()


def stay(loader: DataLoader[object], state: str, handler: str) -> None:
    iterator = iter(loader)
    for _ in range(FREE):
        next(iterator)
    if handler == "forked child":
        fork_child()
    say("ready")
    if state == "idle":
        while True:
            signal.pause()
    next(iterator)
    raise AssertionError("a sample came that never comes")


def fork_child() -> None:
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    say("child", child)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
