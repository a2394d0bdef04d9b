"""Whether the process that writes a record is alive.

A writer holds an exclusive `flock` on its file. The kernel lets it go when the process dies, however it dies. A reader
asks by trying for a shared one, so that readers do not take each other for a writer. Where a file system has no locks,
or the platform none of this kind, the answer is None, and what is left is to look for the process by its pid.

Runs in: main process; wherever records are read.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from typing import Any

import psutil

try:
    import fcntl
except ImportError:  # as on Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

_TRIES = 100
_PAUSE_S = 0.001
_SAME_START_S = 2.0  # the clock that a process's start is told by is coarse


def hold(fd: int) -> bool:
    """Take the writer's lock. A reader that asks at this very moment is in the way for microseconds: try again."""
    if not _HAS_LOCKS:
        return False
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return False
        else:
            return True
    return False


def is_held(fd: int) -> bool | None:
    """Whether a writer has the file that is open as `fd`; None where that cannot be known."""
    if not _HAS_LOCKS:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def identity() -> dict[str, Any]:
    """What a record says of its writer, so that it can be looked for where there are no locks."""
    booted = _booted()  # (first: what psutil makes of a start may go by this look)
    try:
        started = psutil.Process().create_time()
    except psutil.Error:  # no /proc
        started = None
    return {"host": platform.node(), "pid": os.getpid(), "process_started": started, "booted": booted}


def _booted() -> float | None:
    """When this machine was started, by its clock. Linux counts the start of a process from then, so that both move
    when the clock is set. Elsewhere the start of a process stays what it was.
    """
    if sys.platform != "linux":
        return None
    try:
        return float(psutil.boot_time())
    except (OSError, RuntimeError):  # no /proc
        return None


def is_of_this_host(start: Mapping[str, Any]) -> bool:
    """Whether a record's first line was written on this machine: its locks, and its pid, mean something here."""
    return start.get("host") == platform.node()


def is_running(start: Mapping[str, Any]) -> bool:
    """Whether the process that a record's first line names still runs, as far as this machine can tell."""
    pid, started = start.get("pid"), start.get("process_started")
    if not is_of_this_host(start) or not isinstance(pid, int) or not isinstance(started, int | float) or pid <= 0:
        return False
    try:
        moved_s = _clock_moved_s(start.get("booted"))
        return bool(abs(psutil.Process(pid).create_time() - started - moved_s) < _SAME_START_S)
    except (psutil.Error, OverflowError):
        return False


def _clock_moved_s(booted: object) -> float:
    """By how much the clock was set since a record said so; records of older versions do not."""
    now = _booted()
    return now - booted if isinstance(booted, int | float) and now is not None else 0.0
