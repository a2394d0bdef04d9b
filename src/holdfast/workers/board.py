"""The status board: shared memory in which every process says what it is doing, at the price of one store.

    row 0       the supervisor: a tick that goes up while it is well, and whether it is busy with something long;
                the main process: whether it is closing, and what its slots take
    row k + 1   worker k: phase, unit, position in the unit, life, how many samples the present step is about, how long
                and what it may take if that is its own, and what it has of memory: when it was ready, at most while
                it loaded a unit, between units;
                written by others: whether it is to leave, what it had when it was born, and up to which
                of its units all have been taken back

A worker writes its row before it does the thing, so that after a death the sample in hand is known. Who reads judges by
change: a row that stays the same over many of the reader's own ticks is a worker that hangs. No clock is written.

Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import mmap
from enum import IntEnum
from typing import Any, NamedTuple

from holdfast.transport import names
from holdfast.transport.segments import PAGE, Segment
from holdfast.workers import barriers
from holdfast.workers.passing import PassedSegment

_FIELDS = 16  # 128 bytes a row: no two processes write to one cache line
_TICK, _BUSY, _CLOSING, _IMPORTING, _SLOT_BYTES = 0, 1, 2, 3, 4
PHASE, UNIT, POSITION, LIFE, SPAN, ATTEMPT = 0, 1, 2, 3, 4, 5
START_BYTES, LEAVE, BORN_BYTES, PEAK_BYTES, KEPT_BYTES, LIMIT_MS = 6, 7, 8, 9, 10, 11
TAKEN_BACK, LIMIT_BYTES = 12, 13


class Phase(IntEnum):
    """What a worker does. Before IDLE it has not been ready for a sample yet."""

    STARTING = 0  # unpickling, importing, worker_init_fn
    IDLE = 1
    FETCH = 2  # in the dataset
    COLLATE = 3  # in collate_fn
    SEND = 4  # laying the batch out
    ENDING = 5
    BACKOFF = 6  # waiting before another attempt at a sample
    REPLAY = 7  # running an iterable up to where a lost worker had it
    HAND_OVER = 8  # sending the header of a batch that lies ready, for which the main process may have to make room


DOING = {
    Phase.STARTING: "starting",
    Phase.IDLE: "waiting for work",
    Phase.FETCH: "loading",
    Phase.COLLATE: "collating",
    Phase.SEND: "sending",
    Phase.ENDING: "ending",
    Phase.BACKOFF: "waiting for another attempt",
    Phase.REPLAY: "running the iterable up to where it was",
    Phase.HAND_OVER: "handing a batch over",
}
"""In words that go on from "while"."""


class Doing(NamedTuple):
    """A worker's row."""

    phase: Phase
    unit: int
    position: int  # of the sample in hand; -1 where one call loads many
    life: int
    span: int = 1  # samples that the present step is about: what a deadline for one sample is multiplied by
    attempt: int = 0  # goes up with every further attempt at the same thing, so that two do not look like one
    limit_ms: int = 0  # of a call that has a time limit of its own; below 0: it has none
    limit_bytes: int = 0  # of a call that has a memory limit of its own

    @property
    def words(self) -> str:
        """That go on from "while". One that has had a unit in hand was ready before: it begins another epoch."""
        is_ready = self.phase is Phase.STARTING and self.unit >= 0
        return "beginning an epoch" if is_ready else DOING[self.phase]


class WorkerMemory(NamedTuple):
    """What a worker has of its own, in bytes that are resident and of no file. 0: it has not been looked at yet."""

    born: int  # when it was born: not its own
    peak: int  # at most, while it loaded its last units
    kept: int  # between units
    start: int = 0  # when it was ready for its first unit


class Board:
    """All rows, in a segment that can be handed to a spawned process."""

    def __init__(self, memory: Segment | int, num_workers: int) -> None:
        self._segment = memory if isinstance(memory, Segment) else Segment(memory, _size(num_workers))
        self.num_workers = num_workers
        self._cells = memoryview(self._own_mapping()).cast("q")

    def _own_mapping(self) -> Any:
        """Not the segment's: that one ends by a weak reference, which the collector of cycles serves before it calls
        `__del__` of an iterator in the same cycle. Python's mmap ends after that.
        """
        segment = self._segment
        return mmap.mmap(segment.fd, segment.nbytes) if segment.fd >= 0 else segment.view

    @classmethod
    def create(cls, num_workers: int, name: str = "") -> Board:
        """A new board: on a memfd, or under a name for as long as a process that inherits nothing needs one."""
        board = cls(Segment.create(_size(num_workers), name), num_workers)
        if name:
            names.remove(name)
        return board

    @property
    def fd(self) -> int:
        return self._segment.fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (PassedSegment(self._segment), self.num_workers)

    def row(self, worker_id: int) -> memoryview:
        """The cells of one worker, to be written by index with the field constants of this module."""
        start = (worker_id + 1) * _FIELDS
        return self._cells[start : start + _FIELDS]

    def doing(self, worker_id: int) -> Doing:
        row = self.row(worker_id)
        unit = row[UNIT]
        phase, position, life = Phase(row[PHASE]), row[POSITION], row[LIFE]
        return Doing(phase, unit, position, life, row[SPAN], row[ATTEMPT], row[LIMIT_MS], row[LIMIT_BYTES])

    def memory(self, worker_id: int) -> WorkerMemory:
        row = self.row(worker_id)
        return WorkerMemory(row[BORN_BYTES], row[PEAK_BYTES], row[KEPT_BYTES], row[START_BYTES])

    def forget_memory(self) -> None:
        """All workers are gone: what they had is free, and those to come have nothing yet."""
        for worker_id in range(self.num_workers):
            row = self.row(worker_id)
            row[START_BYTES] = row[PEAK_BYTES] = row[KEPT_BYTES] = 0

    def reset(self, worker_id: int, life: int, born_bytes: int = 0) -> None:
        """For the next life. `born_bytes` is what it shares with the process it is a fork of."""
        row = self.row(worker_id)
        row[START_BYTES] = row[LEAVE] = row[PEAK_BYTES] = row[KEPT_BYTES] = 0
        row[LIMIT_MS] = row[LIMIT_BYTES] = 0
        row[BORN_BYTES] = born_bytes
        row[TAKEN_BACK] = -1
        row[PHASE], row[UNIT], row[POSITION], row[LIFE], row[SPAN] = Phase.STARTING, -1, -1, life, 1

    def take_back(self, worker_id: int, last_unit: int) -> int:
        """The worker is to begin none of its units up to this one. Returns the latest that it may have begun: those
        after it are surely left alone. Without a barrier none is.
        """
        row = self.row(worker_id)
        row[TAKEN_BACK] = max(last_unit, row[TAKEN_BACK])
        return int(row[UNIT]) if barriers.on_every_core() else last_unit

    def tick(self) -> None:
        self._cells[_TICK] += 1

    def ticks(self) -> int:
        return int(self._cells[_TICK])

    def set_busy(self, busy: bool) -> None:
        """Said by, or for, a supervisor that will not tick for a while."""
        self._cells[_BUSY] = int(busy)

    def is_busy(self) -> bool:
        return bool(self._cells[_BUSY])

    def set_importing(self, number: int) -> None:
        """Said by a supervisor: which of the job's modules it is about to import, counted from 1; 0: none."""
        self._cells[_IMPORTING] = number

    def importing(self) -> int:
        return int(self._cells[_IMPORTING])

    def set_slot_bytes(self, nbytes: int) -> None:
        """Said by the main process: the memory of all slots."""
        self._cells[_SLOT_BYTES] = nbytes

    def slot_bytes(self) -> int:
        return int(self._cells[_SLOT_BYTES])

    def set_closing(self) -> None:
        """Said by the main process before it hangs up on its workers: it is not dead."""
        self._cells[_CLOSING] = 1

    def is_closing(self) -> bool:
        return bool(self._cells[_CLOSING])

    def close(self) -> None:
        self._segment.close_fd()


def private_row() -> memoryview:
    """A row on no board, for code that writes one where nobody reads it."""
    return memoryview(bytearray(_FIELDS * 8)).cast("q")


def _received(passed: PassedSegment, num_workers: int) -> Board:
    return Board(passed.segment, num_workers)


def _size(num_workers: int) -> int:
    nbytes = (num_workers + 1) * _FIELDS * 8
    return -(-nbytes // PAGE) * PAGE
