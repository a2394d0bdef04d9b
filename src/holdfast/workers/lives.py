"""Which worker processes began and ended, and why: kept for the record until somebody writes it down.

Runs in: main process.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

from holdfast.workers.messages import Reason

FIRST = "first"
_MOST = 1000  # of which nobody wants to know


class Life(NamedTuple):
    """A worker process has started, or has ended."""

    event: str  # "started" or "ended"
    worker_id: int
    pid: int
    why: str  # started: "first", "restart", "recycled", "brought back"; ended: "died", "recycled", "done"
    time: float


class Lives:
    """Of the workers of one backend. `news` is emptied by who writes it down."""

    def __init__(self) -> None:
        self.news: deque[Life] = deque(maxlen=_MOST)
        self.is_closing = False  # whatever ends from now on was to end
        self._pids: dict[int, int] = {}
        self._next: dict[int, str] = {}  # why the next life of a worker will have begun

    def started(self, worker_id: int, pid: int) -> None:
        """Harmless when it is said again."""
        if self._pids.get(worker_id) != pid:
            self._pids[worker_id] = pid
            self.news.append(Life("started", worker_id, pid, self._next.get(worker_id, FIRST), time.time()))

    def ended(self, worker_id: int, reason: Reason | None = None, *, replaced: bool = True) -> None:
        """`reason`: None is the end of all, with their supervisor."""
        pid = self._pids.pop(worker_id, None)
        has_left = reason is Reason.LEFT or self.is_closing
        why = "died" if not has_left else "recycled" if replaced and not self.is_closing else "done"
        self._next[worker_id] = {"died": "restart", "recycled": "recycled", "done": "brought back"}[why]
        if pid is not None:
            self.news.append(Life("ended", worker_id, pid, why, time.time()))

    def all_ended(self) -> None:
        for worker_id in list(self._pids):
            self.ended(worker_id)
