"""A run that is looked at from outside: what is believed, what is not, and that nothing found there is an error.

With a board and a record of this very process. A real loader is looked at in lifetime/test_live_loader.py.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import board_rows
from holdfast.board_rows import INDEX_AREA, Phase
from holdfast.records import board_file, live, reader
from holdfast.records.board_file import BoardFile
from holdfast.records.pickled_indices import sample_at
from holdfast.records.reader import Run
from holdfast.records.writer import RunRecord
from holdfast.workers.board import Board
from unit.records import FACTS, Counted, facts


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def record() -> Iterator[RunRecord]:
    one = RunRecord.open(facts(memory_limit_bytes=1000))
    yield one
    one.close()


class Boards:
    """Those of a test, let go of at its end: the mapping of a board has a descriptor."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.all: list[Board] = []

    def add(self, num_workers: int) -> Board:
        board = Board.create(num_workers)
        board.main_row()[board_rows.TOKEN] = self.token
        self.all.append(board)
        return board

    @property
    def main_row(self) -> memoryview:
        return self.all[0].main_row()

    @property
    def row(self) -> memoryview:
        """Of the first worker."""
        return self.all[0].row(0)

    def close(self) -> None:
        while self.all:
            self.all.pop().close()


@pytest.fixture
def boards(record: RunRecord) -> Iterator[Boards]:
    """One of two workers: the first loads the second sample of batch 3."""
    found = Boards(record.token)
    _fill(found.add(2))
    yield found
    found.close()


def _fill(board: Board) -> None:
    for worker_id in range(2):
        board.reset(worker_id, 1)
    main, row = board.main_row(), board.row(0)
    main[board_rows.FIRST_UNIT] = 100
    main[board_rows.BATCHES], main[board_rows.SAMPLES], main[board_rows.WAITED_NS] = 3, 12, 250_000_000
    row[board_rows.UNIT], row[board_rows.POSITION], row[board_rows.PHASE] = 103, 1, Phase.FETCH
    row[board_rows.PID], row[board_rows.STARTED_TICKS] = os.getpid(), board_rows.started_ticks(os.getpid())
    row[board_rows.START_BYTES] = 50
    INDEX_AREA.pack_into(board.indices(0), 0, 103, pickle.dumps([40, 41, 42, 43], protocol=5))


def the_run() -> Run:
    (run,) = live.running()
    return run


def test_what_is_on_the_board_is_seen(boards: Boards) -> None:
    """Counts, and of each worker what it does, with which sample of which batch, since when, and its memory."""
    seen = live.look(the_run())
    assert seen.is_fresh
    assert (seen.batches, seen.samples, seen.waited_s, seen.restarts, seen.skipped) == (3, 12, 0.25, 0, 0)
    first, second = seen.workers
    assert (first.worker_id, first.pid, first.doing, first.sample, first.batch) == (0, os.getpid(), "loading", 41, 3)
    assert first.since_s is not None
    assert first.since_s >= 0
    assert first.memory_bytes is not None
    assert first.memory_bytes > 1 << 20
    assert first.limit_bytes == 1050
    assert (second.pid, second.doing, second.sample, second.batch, second.memory_bytes) == (
        *(None, "starting", None, None, None),
    )


def test_a_wait_that_goes_on_is_counted_as_far_as_it_is(boards: Boards) -> None:
    """A loop that has waited for a minute has not waited for nothing."""
    boards.main_row[board_rows.WAITING_NS] = time.monotonic_ns() - 60_000_000_000
    assert 60.25 <= live.look(the_run()).waited_s < 600


def test_a_worker_that_is_gone_has_no_pid_and_no_memory(boards: Boards) -> None:
    """Its pid may be another's: when that one started tells."""
    boards.row[board_rows.STARTED_TICKS] -= 1
    worker = live.look(the_run()).workers[0]
    assert (worker.pid, worker.memory_bytes, worker.doing) == (None, None, "loading")


def test_the_indices_of_another_unit_are_not_taken_for_this_one(boards: Boards) -> None:
    """They are written a moment after the unit's number."""
    boards.row[board_rows.UNIT] = 104
    worker = live.look(the_run()).workers[0]
    assert (worker.sample, worker.batch) == (None, 4)


@pytest.mark.parametrize(
    ("cell", "value"), [(board_rows.TOKEN, 1), (board_rows.HAS_ENDED, 1), (board_rows.BOARD_MAGIC, 0)]
)
def test_a_board_of_another_run_or_of_a_closed_iterator_or_of_another_layout_is_not_believed(
    boards: Boards, record: RunRecord, cell: int, value: int
) -> None:
    """Then the record's last word counts, and it is not fresh."""
    record.tick(0.0, Counted())
    record.tick(5.0, Counted(batches=2, samples=8), lambda: {1: os.getpid()})
    record.note_worker({"event": "started", "worker_id": 1, "pid": 1, "why": "restart"})
    boards.main_row[cell] = value
    seen = live.look(the_run())
    assert (seen.is_fresh, seen.batches, seen.samples) == (False, 2, 8)
    [worker] = seen.workers
    assert (worker.worker_id, worker.pid, worker.doing, worker.restarts) == (1, os.getpid(), live.NOT_KNOWN, 1)
    assert worker.memory_bytes is not None


def test_of_several_boards_the_newest_counts(boards: Boards) -> None:
    """As of an epoch within an epoch."""
    boards.add(1).main_row()[board_rows.BATCHES] = 9
    seen = live.look(the_run())
    assert (seen.batches, len(seen.workers)) == (9, 1)


def test_another_process_is_not_taken_for_the_run(boards: Boards) -> None:
    """By its start, or its host, whatever its pid: as in another container."""
    run = the_run()
    for change in ({"process_started": run.start["process_started"] - 100}, {"host": "another"}, {"pid": 1}):
        assert not live.look(dataclasses.replace(run, start={**run.start, **change})).is_fresh


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process's start does not move with the clock")
@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_makes_no_other_process_of_the_run(
    boards: Boards, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    """Linux counts the start of a process from when the machine was started, and that moves with the clock."""
    run, booted = the_run(), psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: booted + by_s)
    assert psutil.Process().create_time() - run.start["process_started"] == pytest.approx(by_s)
    assert live.look(run).is_fresh
    other = {**run.start, "process_started": run.start["process_started"] - 100}
    assert not live.look(dataclasses.replace(run, start=other)).is_fresh
    older = {name: value for name, value in run.start.items() if name != "booted"}
    assert not live.look(dataclasses.replace(run, start=older)).is_fresh


@given(
    start=st.dictionaries(st.sampled_from(["id", "time", "pid", "host", "memory_limit_bytes"]), st.none() | st.text()),
    reading=st.dictionaries(
        st.sampled_from(["workers", "batches", "samples", "waited_s", "time"]),
        st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=5)),
    ),
)
def test_a_record_of_anything_is_looked_at_without_an_error(start: dict[str, Any], reading: dict[str, Any]) -> None:
    """A hostile one, or of another version."""
    run = Run("7f3a", Path("x"), start, (), (reading,), None, True, False, (), 0)
    assert not live.look(run).is_fresh


def test_what_was_noted_since_the_last_reading_counts_too() -> None:
    """A process that was killed has written down what became of its workers and samples; whatever is in those lines."""
    noted = tuple({"event": "started", "why": "restart", "worker_id": one} for one in (0, 0, [1], None))
    reading = {"restarts": 1, "skipped": 0, "workers": [[41, 1000, 900, 0]]}
    run = Run("7f3a", Path("x"), {}, (), (reading,), None, False, False, (), 0, noted, ({"index": 5},))
    look = live.look(run)
    assert (look.restarts, look.skipped, look.workers[0].restarts) == (4, 1, 2)


def test_a_time_beyond_all_numbers_is_no_error() -> None:
    """JSON has whole numbers of any length."""
    start = {"id": "7f3a", "time": 10**400, "pid": os.getpid()}
    assert live._token(Run("7f3a", Path("x"), start, (), (), None, True, False, (), 0)) > 0


@given(data=st.binary(max_size=600))
def test_garbage_is_no_board(data: bytes) -> None:
    """Whatever is in a file that is called as ours."""
    assert BoardFile.parse(data) is None


@given(cells=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=32, max_size=32))
def test_a_row_of_anything_is_told_without_an_error(cells: list[int]) -> None:
    """A torn value is one of these."""
    board = Board.create(1)
    row = board.row(0)
    for number, value in enumerate(cells):
        row[number] = value
    data = os.pread(board.fd, 1 << 20, 0)
    parsed = BoardFile.parse(data)
    assert parsed is not None
    run = Run("7f3a", Path("x"), {"time": 0.0, "memory_limit_bytes": 5}, (), (), None, True, False, (), 0)
    [worker] = live._from_board(run, parsed).workers
    assert worker.doing
    board.close()


def test_a_file_that_gets_shorter_is_no_board_any_more(boards: Boards) -> None:
    """It is read, not mapped: who looks does not die of it."""
    os.ftruncate(boards.all[0].fd, 300)
    assert not live.look(the_run()).is_fresh
    os.ftruncate(boards.all[0].fd, 0)
    assert not live.look(the_run()).is_fresh
    os.ftruncate(boards.all[0].fd, board_rows.used_bytes(2))


def test_a_process_that_may_not_be_looked_at_has_no_board(monkeypatch: pytest.MonkeyPatch, boards: Boards) -> None:
    """Of another user, or where there is no /proc."""

    def refuse(path: str) -> list[str]:
        raise PermissionError(path)

    run = the_run()
    monkeypatch.setattr(board_file.os, "listdir", refuse)
    assert not live.look(run).is_fresh


def test_only_runs_that_are_alive_are_listed(record: RunRecord) -> None:
    """Of many, those; and a run that has ended is told by its last line."""
    over = RunRecord.open(FACTS)
    over.close({"batches": 5, "restarts": 2})
    assert [run.id for run in live.running()] == [record.id]
    assert over.path is not None
    seen = live.look(reader.read(over.path))
    assert (seen.is_fresh, seen.batches, seen.restarts, seen.workers) == (False, 5, 2, ())


# --- the sample in hand -------------------------------------------------------------------------------------------


@given(indices=st.lists(st.integers(-(2**62), 2**62) | st.text(max_size=20), min_size=1, max_size=30), data=st.data())
def test_an_index_is_found_in_a_pickled_list(indices: list[Any], data: st.DataObject) -> None:
    """Numbers and texts, also those that come again."""
    indices += indices
    position = data.draw(st.integers(0, len(indices) - 1))
    assert sample_at(pickle.dumps(indices, protocol=5), position) == indices[position]


def test_of_a_pickle_that_is_cut_off_what_is_whole_is_known() -> None:
    """The board keeps the first kilobyte."""
    pickled = pickle.dumps(list(range(100_000, 101_000)), protocol=5)[:1016]
    assert sample_at(pickled, 150) == 100_150
    assert sample_at(pickled, 999) is None


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (7,)


@pytest.mark.parametrize(
    "indices", [[(0, 3), (1, 4)], [[1, 2], [3]], {1: 2}, [True], [1.5], [RunsCode()], [3, RunsCode()], RunsCode(), b"x"]
)
def test_what_is_neither_a_number_nor_a_text_has_no_answer(indices: Any) -> None:
    """It is never unpickled."""
    assert sample_at(pickle.dumps(indices, protocol=5), 0) is None


def test_an_index_alone_is_found_too() -> None:
    """Without batches there is no list."""
    assert sample_at(pickle.dumps(17, protocol=5), 0) == 17
    assert sample_at(pickle.dumps([None] * 4, protocol=5), 0) is None
    assert sample_at(pickle.dumps([1, 2]), -1) is None


@given(garbage=st.binary(max_size=100), position=st.integers(0, 10))
def test_garbage_has_no_index(garbage: bytes, position: int) -> None:
    """And is no error."""
    assert isinstance(sample_at(garbage, position), int | str | None)
