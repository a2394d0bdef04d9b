"""The status board: who reads it knows what every process was doing, also after its death."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import board_rows
from holdfast.board_rows import (
    ATTEMPT,
    COLLATE_NS,
    CUT_OFF,
    FETCH_NS,
    LIFE,
    LIMIT_BYTES,
    LIMIT_MS,
    PHASE,
    POSITION,
    SEND_NS,
    SPAN,
    UNIT,
    Phase,
)
from holdfast.workers.board import Board, Doing


def test_a_new_board_knows_nothing() -> None:
    """No tick, every worker before its start."""
    board = Board.create(3)
    assert board.ticks() == 0
    assert [board.doing(k) for k in range(3)] == [Doing(Phase.STARTING, 0, 0, 0, 0, 0)] * 3
    board.close()


def test_a_reset_row_has_no_unit() -> None:
    """A new life has nothing in hand, whatever the old one had."""
    board = Board.create(2)
    row = board.row(1)
    row[PHASE], row[UNIT], row[POSITION], row[CUT_OFF] = Phase.SEND, 7, 3, 1
    board.reset(1, life=5)
    assert board.doing(1) == Doing(Phase.STARTING, -1, -1, 5, 1)
    assert board.doing(0) == Doing(Phase.STARTING, 0, 0, 0, 0, 0)
    board.close()


CELLS = (PHASE, UNIT, POSITION, LIFE, SPAN, ATTEMPT, LIMIT_MS, LIMIT_BYTES, CUT_OFF)
cells = st.integers(-(2**63), 2**63 - 1)


@given(
    num_workers=st.integers(1, 200),
    writes=st.lists(
        st.tuples(st.integers(0, 199), st.builds(Doing, st.sampled_from(Phase), *[cells] * 7, st.booleans()))
    ),
)
def test_rows_do_not_touch_each_other(num_workers: int, writes: list[tuple[int, Doing]]) -> None:
    """What one worker writes is in its own row, and the supervisor's tick is in none."""
    board = Board.create(num_workers)
    expected = dict.fromkeys(range(num_workers), Doing(Phase.STARTING, 0, 0, 0, 0, 0))
    for number, doing in writes:
        row = board.row(number % num_workers)
        for cell, value in zip(CELLS, doing, strict=True):
            row[cell] = value
        expected[number % num_workers] = doing
        board.tick()
    assert {worker_id: board.doing(worker_id) for worker_id in range(num_workers)} == expected
    assert board.ticks() == len(writes)
    board.close()


def test_ticks_go_up_by_one() -> None:
    """Who watches judges by change."""
    board = Board.create(1)
    for expected in range(1, 4):
        board.tick()
        assert board.ticks() == expected
    board.close()


def test_another_process_reads_and_writes_the_same_board() -> None:
    """By the descriptor, as a spawned process does."""
    ours = Board.create(2)
    theirs = Board(os.dup(ours.fd), 2)
    theirs.row(1)[PHASE] = Phase.COLLATE
    theirs.tick()
    assert ours.doing(1).phase is Phase.COLLATE
    assert ours.ticks() == 1
    theirs.close()
    ours.close()


def test_what_a_killed_worker_wrote_last_is_there() -> None:
    """The store is in shared memory: SIGKILL takes nothing of it."""
    board = Board.create(1)
    pid = os.fork()
    if pid == 0:
        row = board.row(0)
        row[UNIT], row[POSITION] = 12, 5
        row[PHASE] = Phase.FETCH
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)
    assert board.doing(0) == Doing(Phase.FETCH, 12, 5, 0, 0)
    board.close()


def test_no_two_rows_share_a_cache_line() -> None:
    """Four lines each: no worker slows another one down."""
    board = Board.create(4)
    assert all(board.row(k).nbytes == 4 * 64 for k in range(4))
    board.close()


@pytest.mark.parametrize("num_workers", [1, 63, 64, 300])
def test_the_last_row_is_inside_the_memory(num_workers: int) -> None:
    """Whatever the number of workers; and what it keeps of its indices is behind all rows."""
    board = Board.create(num_workers)
    row = board.row(num_workers - 1)
    assert len(row) == 32
    board.indices(num_workers - 1)[:] = bytes([255]) * board_rows.INDEX_AREA.size
    assert row.tolist() == [0] * 32
    assert os.fstat(board.fd).st_size >= board_rows.used_bytes(num_workers)
    board.close()


def test_what_a_worker_measured_outlives_it() -> None:
    """The times of its stages are of all its lives, and those of all workers are summed up."""
    board = Board.create(2)
    for worker_id, row in enumerate(map(board.row, range(2))):
        row[FETCH_NS], row[COLLATE_NS], row[SEND_NS] = 10 + worker_id, 20, 30
        board.reset(worker_id, life=2)
    assert board.stages_ns() == (21, 40, 60)
    board.close()


def test_a_life_that_was_lost_is_counted_and_one_that_came_to_its_end_is_not() -> None:
    """A worker that is recycled has not been restarted."""
    board = Board.create(1)
    row = board.row(0)
    lost = []
    for life, phase in enumerate([Phase.STARTING, Phase.FETCH, Phase.ENDING, Phase.STARTING]):
        row[PHASE] = phase
        board.reset(0, life + 1)
        lost.append(row[board_rows.LOST_LIVES])
    assert lost == [0, 1, 1, 2]
    board.close()
