"""How long a worker is at each stage, and which samples are worth a word."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from holdfast.board_rows import FETCH_NS, INDEX_AREA, PID, SINCE_NS
from holdfast.workers import stages
from holdfast.workers.board import Board
from holdfast.workers.stages import WORTH_TIMING_NS, SlowSamples, Stages


class Clock:
    """Shows what it is set to."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(stages, "monotonic_ns", one)
    return one


@pytest.fixture
def boards() -> Iterator[list[Board]]:
    """One board, let go of at the end: its mapping has a descriptor."""
    one = [Board.create(1)]
    yield one
    one.pop().close()


def load(worker: Stages, clock: Clock) -> bool:
    """A unit of four samples: 10 ns of loading, 20 of collating, 30 of sending."""
    worker.begin()
    clock.now += 10
    is_worth_timing = worker.collate(4)
    clock.now += 20
    worker.send()
    clock.now += 30
    worker.done()
    return is_worth_timing


def test_each_stage_has_its_sum_over_units_and_lives(boards: list[Board], clock: Clock) -> None:
    """The next life goes on from what it finds; in between nothing is counted."""
    [board] = boards
    worker = Stages(board, 0)
    for _ in range(2):
        clock.now += 1000
        assert not load(worker, clock)
    board.reset(0, 2)
    load(Stages(board, 0), clock)
    assert board.stages_ns() == (30, 60, 90)
    assert board.row(0)[SINCE_NS] == clock.now
    assert board.row(0)[PID] > 0


def test_a_sum_never_goes_back_for_who_looks_while_it_is_written(boards: list[Board]) -> None:
    """Nor for the next life of a worker that is killed at that moment."""
    [board] = boards
    row = board.row(0)
    pid = os.fork()
    if not pid:
        worker, until = Stages(board, 0), time.monotonic() + 0.5
        while time.monotonic() < until:
            worker.begin()
            worker.send()
            worker.done()
        os._exit(0)
    latest, backwards = 0, 0
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        for _ in range(1000):
            now = row[FETCH_NS]
            backwards += now < latest
            latest = now
    assert (latest > 0, backwards) == (True, 0)
    del row


def test_a_unit_of_which_no_batch_is_made_was_loaded_all_the_time(boards: list[Board], clock: Clock) -> None:
    """As one that raised; and what is sent a second time counts as sending."""
    [board] = boards
    worker = Stages(board, 0)
    worker.begin()
    clock.now += 10
    worker.send()
    for _ in range(2):
        clock.now += 5
        worker.done()
    assert board.stages_ns() == (10, 0, 10)


def test_samples_are_timed_when_they_take_long_on_average(boards: list[Board], clock: Clock) -> None:
    """Not when a clock would be a part of what it measures."""
    worker = Stages(boards[0], 0)
    for nanoseconds, expected in ((4 * WORTH_TIMING_NS, False), (4 * WORTH_TIMING_NS + 1, True)):
        worker.begin()
        clock.now += nanoseconds
        assert worker.collate(4) is expected


def test_long_indices_are_cut_off(boards: list[Board]) -> None:
    """A kilobyte at most, and what was there before is gone."""
    [board] = boards
    worker = Stages(board, 0)
    worker.keep_indices(1, b"x" * 5000)
    assert INDEX_AREA.unpack(board.indices(0)) == (1, b"x" * 1016)
    worker.keep_indices(2, b"abc")
    assert INDEX_AREA.unpack(board.indices(0)) == (2, b"abc" + bytes(1013))


def test_only_samples_among_the_longest_are_news() -> None:
    """The first ten, and from then on those that beat one of them."""
    slow = SlowSamples()
    assert len(slow.news((k, 100 + k) for k in range(12))) == 12
    assert slow.news([(0, 102), (1, 500), (2, 103)]) == ((1, 500),)  # from 102 to 111, and then from 103 on
    assert slow.news([(0, 1)]) == ()
