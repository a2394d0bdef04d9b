"""A worker's watch on its own growth: said once, left in time, and counted seldom where counting is dear."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from holdfast.memory.origins import Origins
from holdfast.workers import growing
from holdfast.workers.growing import GrowthWatch

MB = 1 << 20
LARGE = 1 << 40


def watch(most_mb: int = 100, born_mb: int = 0) -> GrowthWatch:
    return GrowthWatch(most_mb * MB, born_mb * MB, "")


def test_a_leak_is_said_once() -> None:
    one = watch()
    said = [one.saw(k, 3 * MB * k) for k in range(400)]
    (grown,) = [each for each in said if each is not None]
    assert grown.bytes_per_sample == pytest.approx(3 * MB, rel=0.1)
    assert grown.largest_in
    assert grown.copied_bytes == 0


def test_it_leaves_when_it_has_grown_too_much() -> None:
    one = watch(most_mb=100)
    for k in range(400):
        one.saw(k, MB * k)
        assert not one.is_to_leave or k > 100
    assert one.is_to_leave


def test_what_is_large_and_does_not_grow_stays() -> None:
    one = watch(most_mb=100)
    assert not any(one.saw(k, 4000 * MB) for k in range(400))
    assert not one.is_to_leave


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def process_time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(growing, "time", clock)
    return clock


def test_copies_are_told_from_its_own_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was born with 1000 MB, has 50 of its own, and 300 pages are its alone."""
    monkeypatch.setattr(growing.smaps, "private_bytes", lambda pid: 400 * MB)
    monkeypatch.setattr(growing.smaps, "private_anonymous_bytes", lambda pid: 300 * MB)
    one = watch(born_mb=1000)
    assert one.saw(10, 1050 * MB) is None
    clock.now_s = 10.0  # 2.5 at least, by the memory it was born with
    grown = one.saw(20, 1050 * MB)
    assert grown is not None
    assert grown.copied_bytes == 250 * MB
    clock.now_s = 1000.0
    assert one.saw(30, 1050 * MB) is None


def test_copies_are_counted_for_a_hundredth_of_the_cpu_time_at_most(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = 0.0

    def count(pid: str) -> int:
        nonlocal spent
        spent += 0.2
        clock.now_s += 0.2
        return 0

    monkeypatch.setattr(growing.smaps, "private_bytes", count)
    one = watch(born_mb=8000)
    for k in range(10_000):
        one.saw(k, 8000 * MB)
        clock.now_s += 0.1
        assert spent <= 0.011 * clock.now_s
    assert 0 < spent <= 0.011 * clock.now_s


def test_a_worker_that_is_no_fork_has_nothing_to_copy(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing.smaps, "private_bytes", lambda pid: pytest.fail("counted"))
    one = watch(born_mb=0)
    for k in range(100):
        clock.now_s += 1.0
        one.saw(k, 500 * MB)


# --- where it is ----------------------------------------------------------------------------------------------------


def test_memory_of_malloc_is_told() -> None:
    origins = Origins("")
    kept = [bytearray(MB) for _ in range(64)]
    assert "malloc" in origins.largest_growth(sum(map(len, kept)))


def test_python_objects_are_told() -> None:
    origins = Origins("")
    kept = [(k, str(k)) for k in range(200_000)]
    assert "Python objects, of which there are" in origins.largest_growth(LARGE)
    assert kept


def test_lines_are_told_on_request() -> None:
    origins = Origins("tracemalloc")
    try:
        kept = [bytearray(MB) for _ in range(32)]
        assert "test_growing.py" in origins.largest_growth(len(kept) * MB)
    finally:
        tracemalloc.stop()


class Kept:
    pass


def test_types_are_told_on_request() -> None:
    gc.collect()
    origins = Origins("types")
    kept = [Kept() for _ in range(50_000)]
    assert f"{__name__}.Kept (+{len(kept)})" in origins.largest_growth(LARGE)
