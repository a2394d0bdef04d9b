"""The status board: shared memory in which every process says what it is doing, at the price of one store.

    row 0       the supervisor: a tick that goes up while it is well, and whether it is busy with something long;
                the main process: whether it is closing, what its slots take, and what it has counted
    row k + 1   worker k: phase, unit, position in the unit, life, how many samples the present step is about, how long
                and what it may take if that is its own, and what it has of memory: when it was ready, at most while
                it loaded a unit, between units; since when it is at its present stage, and how long it was at each
                in all its lives;
                written by others: whether it is to leave, what it had when it was born, and up to which
                of its units all have been taken back
    indices     of each worker's unit in hand, for who looks from outside (`records/live.py`)

A worker writes its row before it does the thing, so that after a death the sample in hand is known. Who watches judges
by change: a row that stays the same over many of its own ticks is a worker that hangs. The clock on the board is for
people to read. Which cell is which is in `board_rows.py`.

Runs in: main | supervisor | worker process.
"""

from __future__ import annotations

import mmap
import time
from typing import Any, NamedTuple

from holdfast import board_rows
from holdfast.board_rows import (
    ATTEMPT,
    BORN_BYTES,
    BUSY,
    CELLS,
    CLOSING,
    COLLATE_NS,
    DOING,
    FETCH_NS,
    IMPORTING,
    KEPT_BYTES,
    LEAVE,
    LIFE,
    LIMIT_BYTES,
    LIMIT_MS,
    PEAK_BYTES,
    PHASE,
    POSITION,
    SEND_NS,
    SLOT_BYTES,
    SPAN,
    START_BYTES,
    TAKEN_BACK,
    TICK,
    UNIT,
    Phase,
)
from holdfast.transport import names
from holdfast.transport.segments import PAGE, Segment
from holdfast.workers import barriers
from holdfast.workers.passing import PassedSegment


class Doing(NamedTuple):
    """A worker's row."""

    phase: Phase
    unit: int
    position: int  # of the sample in hand; -1 where one call loads many
    life: int
    span: int = 1  # samples that the present step is about: what a deadline for one sample is multiplied by
    attempt: int = 0  # goes up with every further attempt at the same thing, so that two do not look like one
    limit_ms: int = 0  # of a call that has a time limit of its own; below 0: it has none
    limit_bytes: int = 0  # of a call that has a memory limit of its own; below 0: it has none
    is_cut_off: bool = False  # it has found its channel to the main process closed in its own process

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
        self._bytes = memoryview(self._own_mapping()).cast("B")
        self._cells = self._bytes[: _size(num_workers)].cast("q")

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
        row = board.main_row()
        row[board_rows.NUM_WORKERS], row[board_rows.BEGAN_NS] = num_workers, time.monotonic_ns()
        row[board_rows.BOARD_MAGIC] = board_rows.MAGIC
        return board

    @property
    def fd(self) -> int:
        return self._segment.fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (PassedSegment(self._segment), self.num_workers)

    def row(self, worker_id: int) -> memoryview:
        """The cells of one worker, to be written by index with the field constants of this module."""
        start = (worker_id + 1) * CELLS
        return self._cells[start : start + CELLS]

    def main_row(self) -> memoryview:
        """The cells of the main process."""
        return self._cells[:CELLS]

    def indices(self, worker_id: int) -> memoryview:
        """What a worker keeps of its unit's indices, as `board_rows.INDEX_AREA` has it."""
        start = board_rows.indices_at(worker_id, self.num_workers)
        return self._bytes[start : start + board_rows.INDEX_AREA.size]

    def stages_ns(self) -> tuple[int, int, int]:
        """How long all workers together, in all their lives, have loaded, collated and sent."""
        rows = [self.row(worker_id) for worker_id in range(self.num_workers)]
        return (
            sum(row[FETCH_NS] for row in rows),
            sum(row[COLLATE_NS] for row in rows),
            sum(row[SEND_NS] for row in rows),
        )

    def doing(self, worker_id: int) -> Doing:
        row = self.row(worker_id)
        unit = row[UNIT]
        phase, position, life = Phase(row[PHASE]), row[POSITION], row[LIFE]
        limits, is_cut_off = (row[LIMIT_MS], row[LIMIT_BYTES]), bool(row[board_rows.CUT_OFF])
        return Doing(phase, unit, position, life, row[SPAN], row[ATTEMPT], *limits, is_cut_off)

    def memory(self, worker_id: int) -> WorkerMemory:
        row = self.row(worker_id)
        return WorkerMemory(row[BORN_BYTES], row[PEAK_BYTES], row[KEPT_BYTES], row[START_BYTES])

    def forget_memory(self) -> None:
        """All workers are gone: what they had is free, and those to come have nothing yet."""
        for worker_id in range(self.num_workers):
            row = self.row(worker_id)
            row[START_BYTES] = row[PEAK_BYTES] = row[KEPT_BYTES] = 0

    def reset(self, worker_id: int, life: int, born_bytes: int = 0) -> None:
        """For the next life. `born_bytes` is what it shares with the process it is a fork of.

        What was measured of stages stays: it is of all lives.
        """
        row = self.row(worker_id)
        row[board_rows.LOST_LIVES] += row[LIFE] > 0 and row[PHASE] != Phase.ENDING
        row[board_rows.PID] = row[board_rows.STARTED_TICKS] = 0
        row[board_rows.SINCE_NS] = time.monotonic_ns()
        row[START_BYTES] = row[LEAVE] = row[PEAK_BYTES] = row[KEPT_BYTES] = 0
        row[LIMIT_MS] = row[LIMIT_BYTES] = row[board_rows.CUT_OFF] = 0
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
        self._cells[TICK] += 1

    def ticks(self) -> int:
        return int(self._cells[TICK])

    def set_busy(self, busy: bool) -> None:
        """Said by, or for, a supervisor that will not tick for a while."""
        self._cells[BUSY] = int(busy)

    def is_busy(self) -> bool:
        return bool(self._cells[BUSY])

    def set_importing(self, number: int) -> None:
        """Said by a supervisor: which of the job's modules it is about to import, counted from 1; 0: none."""
        self._cells[IMPORTING] = number

    def importing(self) -> int:
        return int(self._cells[IMPORTING])

    def set_slot_bytes(self, nbytes: int) -> None:
        """Said by the main process: the memory of all slots."""
        self._cells[SLOT_BYTES] = nbytes

    def slot_bytes(self) -> int:
        return int(self._cells[SLOT_BYTES])

    def set_closing(self) -> None:
        """Said by the main process before it hangs up on its workers: it is not dead."""
        self._cells[CLOSING] = 1

    def is_closing(self) -> bool:
        return bool(self._cells[CLOSING])

    def close(self) -> None:
        self._segment.close_fd()


def private_row() -> memoryview:
    """A row on no board, for code that writes one where nobody reads it."""
    return memoryview(bytearray(board_rows.ROW_BYTES)).cast("q")


def _received(passed: PassedSegment, num_workers: int) -> Board:
    return Board(passed.segment, num_workers)


def _size(num_workers: int) -> int:
    return -(-board_rows.used_bytes(num_workers) // PAGE) * PAGE
