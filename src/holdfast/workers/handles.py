"""A worker as other code sees it: pid, is_alive(), join(), exitcode, as of a `multiprocessing.Process`.

On Linux the process is the supervisor's child, not ours. Its pidfd came with the news of its start, so what is asked
here is about that very process, never about another that got its pid. Runs in: main process.
"""

from __future__ import annotations

import abc
import contextlib
import os
import select
import signal
import time
from typing import Any


class BaseWorkerHandle(abc.ABC):
    """One worker id through all its lives: `pid` is that of the latest."""

    daemon = True

    def __init__(self, context: Any) -> None:
        # A process object that is never started: it gives the name and number that torch's worker would have.
        unstarted = context.Process()
        self.name: str = unstarted.name
        self.identity: tuple[int, ...] = unstarted._identity
        self.start_method: str | None = unstarted._start_method
        self._pid: int | None = None
        self._exitcode: int | None = None

    def __repr__(self) -> str:
        state = "started" if self.is_alive() else f"stopped exitcode={self.exitcode}"
        return f"<holdfast worker name={self.name!r} pid={self._pid} {state} daemon>"

    @property
    def pid(self) -> int | None:
        return self._pid

    @property
    def exitcode(self) -> int | None:
        return self._exitcode

    def living_pid(self) -> int | None:
        """Of the life that is under way, as far as we have heard; for any thread."""
        return self._pid if self._exitcode is None else None

    @abc.abstractmethod
    def is_alive(self) -> bool: ...


class LinuxWorkerHandle(BaseWorkerHandle):
    """A child of the supervisor's, known by its pidfd."""

    def __init__(self, context: Any) -> None:
        self._pidfd = -1
        super().__init__(context)

    def is_alive(self) -> bool:
        return self._pidfd >= 0 and not self._ended_within(0)

    @property
    def sentinel(self) -> int:
        """Ready when the process has ended; -1 if it has."""
        return self._pidfd

    def join(self, timeout: float | None = None) -> None:
        """Wait until the process has ended."""
        if self._pidfd >= 0:
            self._ended_within(timeout)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    # -- for the backend -------------------------------------------------------------------------------------------

    def begin_life(self, pid: int, pidfd: int) -> None:
        if self._pidfd == pidfd:
            return
        self._close()
        self._pid, self._pidfd, self._exitcode = pid, pidfd, None

    def end_life(self, exitcode: int) -> None:
        if self._pidfd >= 0:
            self._exitcode = exitcode
            self._close()

    def _ended_within(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = 1.0 if deadline is None else max(0.0, deadline - time.monotonic())
            if poll.poll(left * 1000):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _close(self) -> None:
        # Forgotten first: cut short by a signal handler in between, it would be closed again, when it is another's.
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)

    def __del__(self) -> None:
        self._close()
