"""A run as it is at this moment, seen from another process, at no cost to it.

    run.start["pid"] ──► /proc/PID/fd/* ──► one that says it is a status board, of this run ──► LiveRun
                                     └── none ──► the last reading of the record, `is_fresh` is False

- Nothing is asked of the run, and nothing is written. Its board is read as a file: who truncates it harms nobody.
- What is found is believed only if the process is the one that the record names, the file says that it is a board,
  and that it is of this very run. A descriptor that is something else by now, and a pid of another process, are seen.
- Never an exception for what is found: the run may end at any moment. Indices are taken apart without being unpickled.

Runs in: wherever records are read.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from holdfast import board_rows
from holdfast.board_rows import DOING, Phase
from holdfast.records import home, liveness, reader
from holdfast.records.board_file import BoardFile, find
from holdfast.records.pickled_indices import sample_at
from holdfast.records.reader import Run
from holdfast.records.readings import own_bytes

NOT_KNOWN = "not known"
_NANO = 1e9
_LOADING = (Phase.FETCH, Phase.BACKOFF)
_WITH_UNIT = (*_LOADING, Phase.COLLATE, Phase.SEND, Phase.HAND_OVER)


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker, and what it does."""

    worker_id: int
    pid: int | None
    """None: it is being started, or is gone."""
    doing: str
    """As in "while loading"."""
    sample: int | str | None
    """The index in hand; None where none is, or it is neither a number nor a text."""
    batch: int | None
    """Which of its epoch."""
    since_s: float | None
    """Seconds at its present stage; where samples take long, at its present sample."""
    memory_bytes: int | None
    """Of its own."""
    limit_bytes: int | None
    """What it may have of its own, with what it had when it was ready."""
    restarts: int


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run, and how far it is."""

    run: Run
    at_s: float
    """When this was so, in seconds since the run started."""
    batches: int
    samples: int
    waited_s: float
    restarts: int
    skipped: int
    workers: tuple[LiveWorker, ...]
    is_fresh: bool
    """Whether this is of now; else it is what the record last said."""


def running() -> list[Run]:
    """The runs of this user whose processes are alive, newest first."""
    found = (_read_if_alive(file) for file in reader.run_files())
    return [run for run in found if run is not None]


def look(run: Run) -> LiveRun:
    """What a run does now, or what its record last said."""
    pid = run.start.get("pid")
    if run.is_alive and isinstance(pid, int) and liveness.is_running(run.start):
        board = find(pid, _token(run))
        if board is not None and liveness.is_running(run.start):  # still: its pid was not another's meanwhile
            return _from_board(run, board)
    return _from_record(run)


def _read_if_alive(file: home.RunFile) -> Run | None:
    """Most are over: that is known from the lock, before anything is read."""
    try:
        fd = home.open_to_read(file.path)
        try:
            is_over = liveness.is_held(fd) is False
        finally:
            os.close(fd)
        run = None if is_over else reader.read(file.path)
    except OSError:  # removed in the meantime, or not ours
        return None
    return run if run is not None and run.is_alive else None


def _token(run: Run) -> int:
    started = run.start.get("time")
    run_id = run.start.get("id")
    return board_rows.token_of(run_id, _number(started)) if run_id and isinstance(started, int | float) else -1


# -- from its board ----------------------------------------------------------------------------------------------------


def _from_board(run: Run, board: BoardFile) -> LiveRun:
    now_ns = time.monotonic_ns()
    main = board.main_row()
    waiting_ns = max(0, now_ns - main[board_rows.WAITING_NS]) if main[board_rows.WAITING_NS] > 0 else 0
    return LiveRun(
        run,
        at_s=max(0.0, time.time() - _number(run.start["time"])),
        batches=main[board_rows.BATCHES],
        samples=main[board_rows.SAMPLES],
        waited_s=(main[board_rows.WAITED_NS] + waiting_ns) / _NANO,
        restarts=main[board_rows.RESTARTS],
        skipped=main[board_rows.SKIPPED],
        workers=tuple(_worker(run, board, worker_id, now_ns) for worker_id in range(board.num_workers)),
        is_fresh=True,
    )


def _worker(run: Run, board: BoardFile, worker_id: int, now_ns: int) -> LiveWorker:
    row = board.row(worker_id)
    pid: int | None = row[board_rows.PID]
    if not pid or pid < 0 or board_rows.started_ticks(pid) != row[board_rows.STARTED_TICKS]:
        pid = None  # another process may have that pid by now
    phase = Phase(row[board_rows.PHASE]) if row[board_rows.PHASE] in DOING else None
    has_unit = phase in _WITH_UNIT and row[board_rows.UNIT] >= 0
    batch = row[board_rows.UNIT] - board.main_row()[board_rows.FIRST_UNIT] if has_unit else None
    since_ns = row[board_rows.SINCE_NS]
    return LiveWorker(
        worker_id,
        pid,
        DOING[phase] if phase is not None else NOT_KNOWN,
        _sample(board, worker_id) if has_unit and phase in _LOADING else None,
        batch if batch is not None and batch >= 0 else None,  # below: of an epoch that was left early
        max(0, now_ns - since_ns) / _NANO if since_ns > 0 else None,
        own_bytes(pid) if pid is not None else None,
        _limit(run, row),
        max(0, row[board_rows.LOST_LIVES]),
    )


def _sample(board: BoardFile, worker_id: int) -> int | str | None:
    row = board.row(worker_id)
    unit, pickled = board.indices(worker_id)
    return sample_at(pickled, row[board_rows.POSITION]) if unit == row[board_rows.UNIT] else None


def _limit(run: Run, row: tuple[int, ...]) -> int | None:
    told = run.start.get("memory_limit_bytes")
    limit = row[board_rows.LIMIT_BYTES] or (told if isinstance(told, int) else 0)
    return row[board_rows.START_BYTES] + limit if limit > 0 and row[board_rows.START_BYTES] > 0 else None


# -- from its record ---------------------------------------------------------------------------------------------------


def _from_record(run: Run) -> LiveRun:
    last = run.last_counts
    readings = run.readings[-1].get("workers") if run.readings and run.end is None else None
    restarts = Counter(repr(line.get("worker_id")) for line in run.workers if line.get("why") == "restart")
    entries = [entry for entry in readings if _is_worker(entry)] if isinstance(readings, list) else []
    return LiveRun(
        run,
        at_s=max(0.0, _number(last.get("time")) - _number(run.start.get("time"))) if last else 0.0,
        batches=int(_number(last.get("batches"))),
        samples=int(_number(last.get("samples"))),
        waited_s=_number(last.get("waited_s")),
        restarts=max(int(_number(last.get("restarts"))), restarts.total()),
        skipped=max(int(_number(last.get("skipped"))), len(run.skipped)),
        workers=tuple(_from_reading(entry, restarts) for entry in entries),
        is_fresh=False,
    )


def _is_worker(entry: Any) -> bool:
    """`[pid, resident, private, worker_id]`; records of older versions do not say which worker it is."""
    return isinstance(entry, list) and len(entry) >= 4 and all(isinstance(entry[k], int) for k in (0, 1, 3))


def _from_reading(entry: list[Any], restarts: Counter[str]) -> LiveWorker:
    pid, resident, private, worker_id = entry[:4]
    memory_bytes = private if isinstance(private, int) else resident
    return LiveWorker(worker_id, pid, NOT_KNOWN, None, None, None, memory_bytes, None, restarts[repr(worker_id)])


def _number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 2**62 else 0.0  # type: ignore[arg-type]
