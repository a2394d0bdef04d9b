"""Pools that live until the interpreter ends finish what they were given, as the standard library's do.

Runs in: main process.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Closable(Protocol):
    """As much of a pool as is needed here."""

    def end_at_exit(self) -> None: ...

    def join(self) -> None: ...


_alive: weakref.WeakSet[Closable] = weakref.WeakSet()
_owner_pid = 0
_is_over = False


def register(pool: Closable) -> None:
    """Before the interpreter waits for its threads, and long before modules are torn down."""
    global _owner_pid  # noqa: PLW0603
    if _owner_pid != os.getpid():
        _owner_pid = os.getpid()
        _alive.clear()  # of the process that this one was forked from
        threading._register_atexit(_end_all)  # type: ignore[attr-defined]
    _alive.add(pool)


def is_over() -> bool:
    """Whether the interpreter is ending: nothing new can be begun."""
    return _is_over


def _end_all() -> None:
    global _is_over  # noqa: PLW0603
    if os.getpid() != _owner_pid:
        return  # a forked child: none of them is its own
    _is_over = True
    pools = list(_alive)
    for pool in pools:
        pool.end_at_exit()
    for pool in pools:
        pool.join()
