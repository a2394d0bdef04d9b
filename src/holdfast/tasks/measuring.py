"""One call, with the seconds and the memory that it takes.

The kernel keeps the peak of a process, and forgets it on request; where there is no /proc nothing is known of memory.
Standard library only. Runs in: the process that loads a sample, mostly a worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"  # see proc_pid_clear_refs(5)


class Measured(NamedTuple):
    """What the call gave, and what it took."""

    value: Any
    seconds: float
    peak_bytes: int | None
    """The most memory above what the process had before; None where the system does not tell."""


def measured(call: Callable[[], Any]) -> Measured:
    """What it raises is raised."""
    before = _start_peak()
    began = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - began
    peak = status_bytes("VmHWM")
    return Measured(value, seconds, None if before is None or peak is None else max(0, peak - before))


def status_bytes(name: str) -> int | None:
    """What the kernel says of this process's memory; None where it does not."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _start_peak() -> int | None:
    """Have the kernel measure the peak anew. Returns what is resident now; None where it cannot be told."""
    try:
        _CLEAR.write_text(_FORGET_PEAK)
    except OSError:
        return None
    return status_bytes("VmRSS")
