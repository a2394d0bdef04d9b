"""Signal handlers of the user's that raise inside `next()`: at any instruction of ours, perhaps again and again.

The next call of `next()` goes on where nothing was left half done, and refuses elsewhere. From then on the work is done
in a thread of its own: Python runs signal handlers in the main thread only, so that none can come between any more.
Nothing of this costs anything before the first interrupt.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast import signal_handlers

_ENDS_WITHIN_S = 3.0

Outcome = tuple[Any, BaseException | None]


class Refuge:
    """A thread to work in. Who calls may be interrupted while he waits; the result waits for his next call."""

    def __init__(self) -> None:
        self._desk = _Desk()
        self.is_ending = False
        self._thread = threading.Thread(target=_serve, args=(self._desk,), name="holdfast-next", daemon=True)
        try:
            self._thread.start()
        except BaseException as error:  # a handler that raises while it is waited for: nobody will know of this thread
            self._desk.orders.put(None)
            if isinstance(error, KeyError) and error.__context__ is not None and came_from_handler(error.__context__):
                raise error.__context__ from None  # Thread.start() stumbled over a thread that was there already
            raise

    def call(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, or of the work that an interrupted call has asked for and not waited for."""
        desk = self._desk
        if desk.is_free():
            desk.orders.put(work)
        while not desk.outcomes:
            desk.has_outcome.acquire()  # here is where a handler nearly always raises; nothing is lost by that
        value, error = desk.outcomes.popleft()
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """Have the thread end. Work that waits looks at `is_ending` now and then."""
        self.is_ending = True
        self._desk.orders.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_ENDS_WITHIN_S)


class Errand:
    """Work in a thread of its own, which is done even if another interrupt comes while it is waited for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._working = threading.Lock()
        self._is_too_late = False
        self._thread = threading.Thread(target=self._do, name="holdfast-interrupted", daemon=True)

    def run(self) -> None:
        self._thread.start()
        self._thread.join(_ENDS_WITHIN_S)

    def _do(self) -> None:
        with self._working:
            if not self._is_too_late:
                self._work()

    def wait(self) -> None:
        """Wait for the end of the work. If it has not begun yet, it never will.

        An interrupt inside run() may come before the thread has begun, and nothing tells whether it is about to.
        """
        self._is_too_late = True
        if self._working.acquire(timeout=_ENDS_WITHIN_S):
            self._working.release()


class _Desk:
    """What lies between the two threads."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.outcomes: deque[Outcome] = deque()
        self.has_outcome = threading.Lock()  # released by the thread when it has put one there
        self.is_busy = False  # set by the thread, which nothing interrupts

    def is_free(self) -> bool:
        return self.orders.empty() and not self.outcomes and not self.is_busy

    def put(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.is_busy = False
        with contextlib.suppress(RuntimeError):  # nobody waits
            self.has_outcome.release()


def _serve(desk: _Desk) -> None:
    while (work := desk.orders.get()) is not None:
        desk.is_busy = True
        try:
            outcome: Outcome = work(), None
        except BaseException as error:
            outcome = None, error
        del work  # it holds the iterator, which must be free to go while we wait
        desk.put(outcome)
        del outcome


def came_from_handler(error: BaseException) -> bool:
    """Whether a signal handler raised this. What is no `Exception`, such as a KeyboardInterrupt, is taken for that."""
    if not isinstance(error, Exception):
        return True
    return signal_handlers.have_raised(error)
