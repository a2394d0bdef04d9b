"""Where what is on the status board: for the processes that write it, and for who looks at it from outside.

    rows      row 0: the supervisor, and the main process; row k + 1: worker k. 32 cells of 8 bytes each
    indices   of each worker: the number of a unit, and the beginning of the pickle of its indices

A board says of itself what it is (`MAGIC`), and of which run (`TOKEN`): who finds a file that could be one need not
believe it. Times are those of `time.monotonic_ns()`, which is one clock for all processes of a machine.

Standard library only. Runs in: main | supervisor | worker process; wherever a run is looked at.
"""

from __future__ import annotations

import hashlib
import sys
from enum import IntEnum
from pathlib import Path
from struct import Struct

MAGIC = 0x68_6F_6C_64_66_61_73_02  # its last byte goes up when the meaning of a cell changes
CELLS = 32
"""Of a row: 256 bytes, so that no two processes write to one cache line, nor to two that are fetched together."""
CELL_BYTES = 8
ROW_BYTES = CELLS * CELL_BYTES

# Row 0: cells of the supervisor, and some that the main process writes now and then.
TICK, BUSY, CLOSING, IMPORTING, SLOT_BYTES = 0, 1, 2, 3, 4
# Row 0: cells of the main process alone, on lines of their own. `BOARD_MAGIC` comes last.
BOARD_MAGIC, NUM_WORKERS, TOKEN, BEGAN_NS, HAS_ENDED = 16, 17, 18, 19, 20
EPOCH, FIRST_UNIT, BATCHES, SAMPLES, WAITED_NS, WAITING_NS, RESTARTS, SKIPPED = 21, 22, 23, 24, 25, 26, 27, 28

# A worker's row.
PHASE, UNIT, POSITION, LIFE, SPAN, ATTEMPT = 0, 1, 2, 3, 4, 5
START_BYTES, LEAVE, BORN_BYTES, PEAK_BYTES, KEPT_BYTES, LIMIT_MS = 6, 7, 8, 9, 10, 11
TAKEN_BACK, LIMIT_BYTES, CUT_OFF = 12, 13, 14
SINCE_NS, FETCH_NS, COLLATE_NS, SEND_NS = 16, 17, 18, 19
PID, STARTED_TICKS, LOST_LIVES = 20, 21, 22

INDEX_AREA = Struct("=q1016s")
"""What a worker keeps of the unit in hand: its number, and as much of its pickled indices as there is room for."""


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


def row_at(worker_id: int) -> int:
    """Where a worker's row begins, in bytes."""
    return (worker_id + 1) * ROW_BYTES


def indices_at(worker_id: int, num_workers: int) -> int:
    """Where what a worker keeps of its indices begins, in bytes."""
    return row_at(num_workers) + worker_id * INDEX_AREA.size


def used_bytes(num_workers: int) -> int:
    """Of a board; its file may be longer."""
    return indices_at(num_workers, num_workers)


def token_of(run_id: str, started: float) -> int:
    """What the boards of a run say that they are of: never 0, which is no run."""
    digest = hashlib.blake2b(f"{run_id} {started!r}".encode(), digest_size=CELL_BYTES).digest()
    return int.from_bytes(digest, "little") >> 2 | 1


def started_ticks(pid: int) -> int:
    """When a process started, in the kernel's own count: with it, a pid means that process and no later one."""
    if sys.platform != "linux":
        return 0
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
