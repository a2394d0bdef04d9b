"""How long a worker loads, collates and sends, and which of its samples took longest.

    begin ──fetch──► collating ──collate──► sending ──send──► done      one reading of a clock each

The sums lie on the worker's row of the status board, where the main process reads them when it wants to, and where the
next life of the worker finds them. Samples are timed one by one only while they take so long that a clock is nothing.
The batch before says so: those of a process's first batch, which may do what is done once, are not timed.

Runs in: worker process; main process, without workers (`SlowSamples`).
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable
from time import monotonic_ns

from holdfast import board_rows
from holdfast.board_rows import COLLATE_NS, FETCH_NS, INDEX_AREA, SEND_NS, SINCE_NS
from holdfast.workers.board import Board

WORTH_TIMING_NS = 50_000
"""A sample that takes so long is not slowed down by two readings of a clock, which take a tenth of a microsecond."""
MOST_SLOW = 10

_keep = INDEX_AREA.pack_into


class Stages:
    """The clock of one worker."""

    __slots__ = ("_began_ns", "_collating_ns", "_indices", "_row", "_sending_ns", "_sums_ns")

    def __init__(self, board: Board, worker_id: int) -> None:
        self._row = row = board.row(worker_id)
        self._indices = board.indices(worker_id)
        self._sums_ns: tuple[int, int, int] = row[FETCH_NS], row[COLLATE_NS], row[SEND_NS]
        self._began_ns = self._collating_ns = self._sending_ns = row[SINCE_NS] = monotonic_ns()
        row[board_rows.STARTED_TICKS] = board_rows.started_ticks(os.getpid())
        row[board_rows.PID] = os.getpid()

    def wait(self) -> None:
        """There is nothing to do yet."""
        self._row[SINCE_NS] = monotonic_ns()

    def begin(self) -> None:
        self._began_ns = self._row[SINCE_NS] = monotonic_ns()
        self._collating_ns = 0

    def keep_indices(self, unit: int, pickled: bytes) -> None:
        """For who looks from outside: one copy of at most a kilobyte."""
        _keep(self._indices, 0, unit, pickled)

    def collate(self, samples: int) -> bool:
        """Whether the samples took so long that the next ones are to be timed one by one."""
        self._collating_ns = now = self._row[SINCE_NS] = monotonic_ns()
        return now - self._began_ns > WORTH_TIMING_NS * samples

    def send(self) -> None:
        self._sending_ns = self._row[SINCE_NS] = monotonic_ns()

    def done(self) -> None:
        """Before the main process hears of the unit: it may read the sums then."""
        now, sending = monotonic_ns(), self._sending_ns
        fetch, collate, send = self._sums_ns
        collating = self._collating_ns or sending  # no batch was made
        fetch += collating - self._began_ns
        collate += sending - collating
        send += now - sending
        self._sums_ns = fetch, collate, send
        row = self._row  # cell by cell: to pack them at once clears them first, and somebody may look, or kill, then
        row[SINCE_NS], row[FETCH_NS], row[COLLATE_NS], row[SEND_NS] = now, fetch, collate, send
        self._began_ns = self._collating_ns = self._sending_ns = now  # should it be sent once more


class SlowSamples:
    """The longest times so far, to tell which samples are worth a word."""

    def __init__(self) -> None:
        self._longest_ns = [0] * MOST_SLOW  # a heap

    def news(self, times: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Of position and nanoseconds of each sample: those that are among the longest."""
        found = []
        for position, nanoseconds in times:
            if nanoseconds > self._longest_ns[0]:
                heapq.heapreplace(self._longest_ns, nanoseconds)
                found.append((position, nanoseconds))
        return tuple(found)
