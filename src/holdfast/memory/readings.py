"""What one process uses, read cheaply enough to be read all the time.

Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path


def anonymous_bytes(pid: int | str) -> int | None:
    """Resident memory of a process that is of no file and not shared; None if it is gone, or cannot be known.

    A forked process shows what it shares with its parent, too: compare with the value at its birth.
    """
    if sys.platform != "linux":
        return unique_bytes(pid)
    try:
        fd = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)  # half the time of a file object
        try:
            _, resident, shared, *_ = map(int, os.read(fd, 256).split())
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None
    return (resident - shared) * mmap.PAGESIZE or None  # 0: it has ended, and is only not reaped yet


def unique_bytes(pid: int | str) -> int | None:
    """What would be free if the process ended, on any platform. Takes milliseconds."""
    import psutil

    try:
        return int(psutil.Process(None if pid == "self" else int(pid)).memory_full_info().uss) or None
    except psutil.Error:
        return None


def data_bytes(pid: int | str) -> int | None:
    """Its private, writable memory, touched or not: what RLIMIT_DATA counts. None where that is not known."""
    return _status(pid, "VmData:")


def shared_memory_bytes(pid: int | str) -> int | None:
    """Resident memory of /dev/shm, memfds and the like; files on disks not counted."""
    return _status(pid, "RssShmem:")


def _status(pid: int | str, name: str) -> int | None:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
