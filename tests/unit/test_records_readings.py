"""Readings: when they are due, and what they say."""

from __future__ import annotations

import math
import os
from dataclasses import asdict

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records import readings
from holdfast.records.limits import Limits
from holdfast.records.readings import Memory, Pace, Readings, WorkerReading, memory_of, own_bytes, reading
from unit.records import Counted


def test_the_first_call_starts_the_clock() -> None:
    """A reading comes a second later, and not before."""
    one = Readings()
    counters = Counted(batches=3)
    assert one.pace.due_s == -math.inf
    assert one.take(1000.0, counters, dict) is None
    assert one.pace.due_s == 1001.0
    assert one.take(1000.9, counters, dict) is None
    said = one.take(1006.0, counters, dict)
    assert said is not None
    assert (said["at_s"], said["interval_s"], said["batches"]) == (6.0, 5.0, 3)


@pytest.mark.parametrize(("nbytes", "at_once"), [(100, 240), (20_000, 14)])
def test_the_interval_doubles_after_so_many_readings_or_bytes(nbytes: int, at_once: int) -> None:
    """Whichever comes first."""
    pace = Pace()
    for n in range(at_once):
        assert pace.interval_s == 5.0, n
        pace.taken(0.0, nbytes)
    assert (pace.interval_s, pace.due_s) == (10.0, 10.0)
    for _ in range(at_once):
        assert pace.interval_s == 10.0
        pace.taken(0.0, nbytes)
    assert pace.interval_s == 20.0


@given(steps=st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_readings_are_never_closer_than_the_interval(steps: list[float]) -> None:
    """Whatever the steps of the clock; and one after a long step makes up for nothing."""
    one = Readings(Limits(readings_per_interval=5))
    now_s, last_s = 0.0, None
    for step in steps:
        now_s += step
        interval_s = one.pace.interval_s
        if one.take(now_s, Counted(), dict) is not None:
            one.pace.taken(now_s, 100)
            assert last_s is None or now_s - last_s >= interval_s * 0.999
            last_s = now_s


def test_a_reading_says_what_was_counted_and_the_memory() -> None:
    """In bytes: of the main process, and of each worker by its pid."""
    counters = Counted(batches=1, samples=64, waited_s=0.12345, restarts=2, skipped=3, stages=(1.0, 2.0, 3.0))
    workers = [WorkerReading(0, 7, Memory(50, 20)), WorkerReading(3, 8, Memory(60, None))]
    said = reading(counters, Memory(100, 40), workers)
    assert said == {
        **asdict(counters),
        "waited_s": 0.123,
        "main": [100, 40],
        "workers": [[7, 50, 20, 0], [8, 60, None, 3]],
        "stages": {"fetch_s": 1.0, "collate_s": 2.0, "send_s": 3.0},
        "slowest": [],
    }


def test_many_workers_are_summed_up() -> None:
    """The first 64 one by one, the rest together: a line stays short."""
    said = reading(Counted(), None, [WorkerReading(k, 1000 + k, Memory(10, 1)) for k in range(100)])
    assert len(said["workers"]) == 64
    assert said["more_workers"] == [36, 360, 36]
    assert said["main"] is None


def test_the_memory_of_a_process_is_what_the_system_says() -> None:
    """Within what changes between two looks."""
    memory = memory_of(os.getpid())
    assert memory is not None
    assert memory.resident_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert memory.private_bytes is not None
    assert 0 < memory.private_bytes < memory.resident_bytes


def test_elsewhere_the_memory_comes_from_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which does not tell everywhere what is private."""
    monkeypatch.setattr(readings.sys, "platform", "darwin")
    memory = memory_of(os.getpid())
    assert memory is not None
    assert memory.resident_bytes > 1 << 20
    assert memory.private_bytes is None
    assert memory_of(2**22 + 1) is None
    assert own_bytes() == pytest.approx(memory.resident_bytes, rel=0.2)


def test_a_process_that_is_gone_has_no_memory() -> None:
    """It is left out of the reading."""
    assert memory_of(2**22 + 1) is None
    one = Readings()
    one.take(0.0, Counted(), dict)
    said = one.take(5.0, Counted(), lambda: {0: os.getpid(), 1: 2**22 + 1})
    assert said is not None
    assert [pid for pid, *_ in said["workers"]] == [os.getpid()]
