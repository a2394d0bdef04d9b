"""A memory barrier on every core at once: what two processes need to agree through shared memory without a lock.

    main:    store "taken back", barrier, load "begun"        worker:  store "begun", load "taken back"

Whichever is first, at least one of the two sees the other's store. The worker, which does its part for every call, pays
nothing for it; the main process pays some milliseconds, and does it seldom. Linux only. Runs in: main process.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

_NUMBERS = {"x86_64": 324, "aarch64": 283, "riscv64": 283}  # of membarrier(2)
_QUERY, _GLOBAL = 0, 1


@functools.cache
def are_possible() -> bool:
    """Whether the kernel has it, and lets us: a sandbox may not."""
    if sys.platform != "linux" or platform.machine() not in _NUMBERS:
        return False
    return _call(_QUERY) & _GLOBAL != 0 and _call(_GLOBAL) == 0


def on_every_core() -> bool:
    """True when it has been done."""
    return are_possible() and _call(_GLOBAL) == 0


def _call(command: int) -> int:
    """Below 0: an error."""
    return int(ctypes.CDLL(None).syscall(_NUMBERS[platform.machine()], command, 0, 0))
