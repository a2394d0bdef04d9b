"""Iterators that live until the interpreter ends are closed before modules are torn down.

Runs in: main process.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Closable(Protocol):
    """As much of an iterator as is needed here."""

    _is_waiting: bool

    def _shutdown_workers(self, grace_s: float = ...) -> None: ...


_alive: weakref.WeakSet[Closable] = weakref.WeakSet()


def end_at_exit(iterator: Closable) -> None:
    """Registered anew with the first one, so that it runs before what was registered earlier."""
    if not _alive:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _alive.add(iterator)


def _end_all() -> None:
    for iterator in list(_alive):
        # One that a daemon thread waits in is left alone: its workers go with this process.
        if not iterator._is_waiting:
            iterator._shutdown_workers(grace_s=0.0)  # as torch: at exit, workers are not waited for
