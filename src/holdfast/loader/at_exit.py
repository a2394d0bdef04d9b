"""Iterators that live until the interpreter ends are closed before modules are torn down.

Runs in: main process.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from typing import Protocol


class Closable(Protocol):
    """As much of an iterator as is needed here."""

    _is_waiting: bool

    def _shutdown_workers(self, grace_s: float = ...) -> None: ...


_HELD_S = 5.0
_HELD_BY_THEN_S = 0.05
_exiting: list[bool] = []
_alive: weakref.WeakSet[Closable] = weakref.WeakSet()


def end_at_exit(iterator: Closable) -> None:
    """Registered anew with the first one, so that it runs before what was registered earlier."""
    if not _alive:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _alive.add(iterator)


def hold_daemon_thread() -> None:
    """At exit, a daemon thread goes with the process. It is kept from going with a traceback, because its iterator was
    closed, and from going in the middle of torch's code, which aborts. Not for ever: somebody may wait for its end.
    """
    if _exiting and threading.current_thread() is not threading.main_thread():
        time.sleep(_HELD_S)


def _end_all() -> None:
    _exiting.append(True)
    for iterator in list(_alive):
        # One that a daemon thread waits in is left alone: its workers go with this process.
        if not iterator._is_waiting:
            iterator._shutdown_workers(grace_s=0.0)  # as torch: at exit, workers are not waited for
    if threading.active_count() > 1 and _alive:
        time.sleep(_HELD_BY_THEN_S)
