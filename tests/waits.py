"""Bounded waits, for all tests: also for those that run where there is no torch.

Every wait has a deadline, and says what it waited for when the deadline passes.

Runs in: the test process and the child programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

PATIENCE_S = 60.0
"""For what must happen, on a machine that may be slow."""
CLOSE_DEADLINE_S = 10.0
"""For a close, whatever a worker does."""


def wait_until(condition: Callable[[], object], deadline_s: float, what: str = "the condition") -> float:
    """Wait until `condition()` is true; fail past the deadline. Returns the seconds it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > deadline_s:
            raise AssertionError(f"{what} did not come true within {deadline_s} s")
        time.sleep(0.005)
    return time.monotonic() - start


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def shared_memory_names() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}
