"""What one process uses, read cheaply enough to be read all the time.

Runs in: main | supervisor process.
"""

from __future__ import annotations

import mmap
from pathlib import Path


def anonymous_bytes(pid: int | str) -> int | None:
    """Resident memory of a process that is of no file and not shared; None if it is gone, or not on this platform.

    A forked process shows what it shares with its parent, too: compare with the value at its birth.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * mmap.PAGESIZE or None  # 0: it has ended, and is only not reaped yet
