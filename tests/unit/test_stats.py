"""What a loader counts, and what it tells of it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from holdfast.board_rows import FETCH_NS
from holdfast.loader.slowest import Slowest
from holdfast.loader.stats import CountedInRun, Counters, LoaderStats, MemoryUse, SlowSample, StageTimes
from holdfast.workers.board import Board

COUNTS = (
    *("batches", "samples", "waited_s", "restarts"),
    *("supervisor_restarts", "recycled", "skipped", "new_interpreters"),
)


def test_a_reading_tells_every_count_by_its_name() -> None:
    """Each in its own field: a number of its own for each."""
    counters = Counters(**{name: k for k, name in enumerate(COUNTS)})  # type: ignore[arg-type]
    told = counters.read()
    assert {name: getattr(told, name) for name in COUNTS} == {name: k for k, name in enumerate(COUNTS)}
    assert [field.name for field in dataclasses.fields(LoaderStats)] == [*COUNTS, "stages", "memory", "slowest"]
    assert told.memory.main_bytes is not None
    assert told.memory.main_bytes > 1 << 20


def test_a_reading_does_not_change_when_counting_goes_on() -> None:
    """It can be kept and compared with a later one."""
    counters = Counters()
    before = counters.read()
    counters.batches += 1
    assert (before.batches, counters.read().batches) == (0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.batches = 2  # type: ignore[misc]


def test_stages_are_those_of_boards_in_use_and_of_closed_ones() -> None:
    """What was measured on a board is counted once, while it is there and after."""
    counters, board = Counters(), Board.create(2)
    counters.add_stages(1_000_000_000, 2_000_000_000)
    counters.boards.append(board)
    board.row(1)[FETCH_NS] = 500_000_000
    assert counters.stages() == StageTimes(1.5, 2.0, 0.0)
    for _ in range(2):
        counters.settle(board)
        assert (counters.stages(), counters.boards) == (StageTimes(1.5, 2.0, 0.0), [])
    board.close()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_what_was_counted_and_no_board(duplicate: Any) -> None:
    """The board is the iterator's, and the iterator not the copy's."""
    board = Board.create(1)
    counters = Counters(batches=3, stages_ns=(1, 2, 3), boards=[board])
    other = duplicate(counters)
    assert (other.batches, other.stages_ns, other.boards) == (3, (1, 2, 3), [])
    board.close()


def test_the_record_has_all_of_it() -> None:
    """By the names that the statistics have; slow samples as lists."""
    counters = Counters(batches=2)
    counted = CountedInRun(counters)
    counters.slowest.saw(7, 0.25, 1, 0)
    summary = counted.summary()
    assert summary.keys() == {field.name for field in dataclasses.fields(LoaderStats)}
    assert summary["slowest"] == [[7, 0.25, 1, 0]]
    assert summary["stages"] == {"fetch_s": 0.0, "collate_s": 0.0, "send_s": 0.0}


def test_a_run_has_only_what_was_counted_in_it() -> None:
    """A loader that is used again after `close()` had another run before, with its own restarts and slow samples."""
    counters = Counters(batches=2, samples=8, waited_s=1.5, restarts=1, skipped=3, new_interpreters="a thread")
    counters.add_stages(1_000_000_000, 0)
    counters.slowest.saw(7, 0.25, 1, 0)
    counted = CountedInRun(counters)
    counters.batches += 1
    counters.recycled += 4
    counters.add_stages(500_000_000, 0)
    counters.slowest.saw(8, 0.125, 0, 1)
    summary = counted.summary()
    assert [summary[name] for name in ("batches", "samples", "waited_s", "restarts", "skipped")] == [1, 0, 0.0, 0, 0]
    assert (counted.batches, counted.samples, counted.waited_s, counted.restarts, counted.skipped) == (1, 0, 0.0, 0, 0)
    assert (summary["recycled"], summary["new_interpreters"]) == (4, "a thread")
    assert summary["stages"]["fetch_s"] == 0.5
    assert summary["slowest"] == [[8, 0.125, 0, 1]]


# --- the slowest samples ------------------------------------------------------------------------------------------


def test_the_ten_slowest_are_kept_slowest_first() -> None:
    """Each once, with its longest time."""
    slowest = Slowest()
    for k in range(100):
        slowest.saw(k * 7 % 50, float(k), 0, k // 50)
    assert [(one.seconds, one.index) for one in slowest.samples] == [(float(k), k * 7 % 50) for k in range(99, 89, -1)]
    slowest.saw(slowest.samples[3].index, 1000.0, 1, 2)
    assert (slowest.samples[0].seconds, len({one.index for one in slowest.samples})) == (1000.0, 10)


class NotToBeCompared:
    """As an array, or worse."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


def test_an_index_may_be_any_object() -> None:
    """One that cannot be compared is another one."""
    slowest = Slowest()
    slowest.saw(NotToBeCompared(), 1.0, 0, 0)
    slowest.saw(NotToBeCompared(), 2.0, 0, 0)
    assert [one.seconds for one in slowest.samples] == [2.0, 1.0]


# --- as a table ---------------------------------------------------------------------------------------------------


def stats(**changes: Any) -> LoaderStats:
    facts = {**dict.fromkeys(COUNTS, 0), "waited_s": 1.5, "new_interpreters": None, **changes}
    return LoaderStats(**facts)


def test_printed_it_is_a_table_and_its_repr_is_not() -> None:
    """Numbers end in one column; every line fits into a terminal."""
    slow = (SlowSample(4711, 1.25, 0, 3), SlowSample("x" * 100, 0.5, None, 0))
    told = stats(batches=12_345, stages=StageTimes(3.0, 1.0, 0.0), memory=MemoryUse(1 << 30, (5 << 20,)), slowest=slow)
    lines = str(told).splitlines()
    assert "batches                       12,345" in lines
    assert "waited for batches           1.500 s" in lines
    assert "  fetch                      3.000 s    75%" in lines
    assert [line.split() for line in lines if "4711" in line] == [["4711", "1.2500", "0", "3"]]
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in lines[:7]}) == 1
    assert repr(told).startswith("LoaderStats(batches=12345, ")


def test_what_is_not_known_is_not_in_the_table() -> None:
    """No stages, no slow samples, no memory: no headings for them."""
    said = str(stats())
    assert "time in workers" not in said
    assert "slowest" not in said
    assert "memory" not in said
