"""Judging from outside whether a worker is still at work: a step that takes too long, a process that was stopped.

Time is counted in the watcher's own ticks, each worth no more than it should take: a stopped terminal, a debugger or a
suspended laptop stops the watcher as well, and is not a hang. Runs in: supervisor process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from holdfast.workers.board import Doing, Phase

STACK_SIGNAL = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else 0
"""Makes a worker write the stacks of its threads, whatever they do, and go on. No library we know uses it."""

_SLOWEST_TICK_S = 0.5
_TICKS_PER_LIMIT = 5
_STOPPED_GRACE_S = 1.0
_STACK_WITHIN_S = 0.2
_STACK_SETTLES_S = 0.05  # it writes no more: on a busy machine it may be interrupted for some time in between
_STACK_WRITTEN_WITHIN_S = 1.0
_LONGEST_STACK = 32 * 1024  # bytes: it travels in one message, and a hundred threads have more to tell
_WATCHED = (Phase.FETCH, Phase.COLLATE, Phase.SEND, Phase.REPLAY)


def tick_s(limit_s: float | None) -> float:
    """How often to look, for a deadline of so many seconds."""
    return _SLOWEST_TICK_S if limit_s is None else min(_SLOWEST_TICK_S, limit_s / _TICKS_PER_LIMIT)


class Deadline:
    """How long one worker has been at the same step. `limit_s` is for a step that is about one sample."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._last: Doing | None = None
        self._same_s = 0.0

    def is_over(self, doing: Doing, elapsed_s: float) -> bool:
        """Called at every tick with the worker's row, and the time since the last call."""
        if self._limit_s is None:
            return False
        self._same_s = self._same_s + elapsed_s if doing == self._last else 0.0
        self._last = doing
        return doing.phase in _WATCHED and self._same_s > self._limit_s * max(1, doing.span)


class StopWatch:
    """How long a child process has been stopped by a signal."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self.is_stopped = False
        self._stopped_s = 0.0

    def is_over(self, elapsed_s: float) -> bool:
        """Whether it was not continued within a short grace."""
        with contextlib.suppress(ChildProcessError):
            while (news := os.waitid(os.P_PIDFD, self._pidfd, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)) is not None:
                self.is_stopped = news.si_code == os.CLD_STOPPED
        self._stopped_s = self._stopped_s + elapsed_s if self.is_stopped else 0.0
        return self._stopped_s > _STOPPED_GRACE_S


class StackRequest:
    """Asks a worker that is about to be ended for its Python stacks, which it writes to a file.

    The signal also interrupts C calls, so it is sent only when the end is decided.
    """

    def __init__(self, pidfd: int, file: int) -> None:
        self._file = file
        self._start = self._size = os.fstat(file).st_size
        self._grew_s = time.monotonic()
        self._asked_s, self._within_s = self._grew_s, _STACK_WITHIN_S
        try:
            signal.pidfd_send_signal(pidfd, STACK_SIGNAL)
        except ProcessLookupError:
            self._within_s = 0.0

    def answer(self) -> str | None:
        """Empty if it writes nothing; None: that is not known yet."""
        now, size = time.monotonic(), os.fstat(self._file).st_size
        if size != self._size:
            self._size, self._grew_s, self._within_s = size, now, _STACK_WRITTEN_WITHIN_S
        is_written = size > self._start and now - self._grew_s >= _STACK_SETTLES_S
        if not is_written and now - self._asked_s < self._within_s:
            return None
        start = max(self._start, size - _LONGEST_STACK)  # the main thread comes last
        return os.pread(self._file, size - start, start).decode(errors="replace")
