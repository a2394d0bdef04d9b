"""Which numbers of workers are tried, what arrivals say of a rate, and round numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.sizes import parse_bytes
from holdfast.tasks.tune import footprint, rates, sizing
from holdfast.tasks.tune.facts import Point, Setting, Spread
from holdfast.tasks.tune.notes import Course, notes


@pytest.mark.parametrize(
    ("cpus", "most", "counts"),
    [
        (1, None, [1, 2]),
        (2, None, [1, 2, 4]),
        (6, None, [1, 2, 4, 6, 8, 12]),
        (16, None, [1, 2, 4, 8, 16, 32]),
        (2, 16, [1, 2, 4, 8, 16]),
        (8, 3, [1, 2, 3]),
        (4, 1, [1]),
    ],
)
def test_workers_double_up_to_twice_the_cpus(cpus: int, most: int | None, counts: list[int]) -> None:
    """With the number of CPUs among them, and the last one that is wanted."""
    assert rates.worker_counts(cpus, most) == counts


@pytest.mark.parametrize(
    ("seen", "is_flat"),
    [
        ([10.0], False),
        ([10.0, 10.0], False),
        ([10.0, 10.1, 10.2], True),
        ([10.0, 20.0, 20.1], False),
        ([10.0, 20.0, 20.1, 20.2], True),
        ([10.0, 9.0, 30.0], False),
    ],
)
def test_a_curve_is_flat_when_two_more_gained_nothing(seen: list[float], is_flat: bool) -> None:
    """One that gained nothing may have been disturbed."""
    assert rates.has_flattened(seen) is is_flat


@given(st.integers(1, 32), st.integers(3, 20), st.floats(0.01, 10), st.floats(0, 100))
def test_batches_that_come_in_turns_are_counted_by_turns(
    workers: int, turns: int, turn_s: float, start_s: float
) -> None:
    """Wherever the count ends within a turn, and however long the workers took to start."""
    arrivals = [start_s + turn_s * (1 + batch // workers) for batch in range(workers * turns)]
    for cut in {len(arrivals), len(arrivals) - workers // 2}:
        rate = rates.rate(arrivals[:cut], workers)
        assert rate == pytest.approx(workers / turn_s, rel=1e-3)


def test_too_few_batches_are_counted_from_the_start() -> None:
    """And none at all give no rate."""
    assert rates.rate([2.0, 4.0], 4) == 0.5
    assert rates.rate([], 4) is None
    assert rates.rate([0.0], 1) is None


@given(st.integers(1, 4096), st.floats(0, 100), st.floats(0.01, 100))
def test_a_measured_batch_is_no_larger_than_the_users(batch_size: int, sample_s: float, window_s: float) -> None:
    size = rates.measured_batch_size(batch_size, sample_s, window_s)
    assert 1 <= size <= batch_size
    assert size == 1 or size * sample_s * 5 <= window_s


@given(st.floats(1, 1e15))
def test_round_sizes_are_what_the_loader_reads(nbytes: float) -> None:
    """Up is no less and no more than half as much again; down is no more. All are written without loss."""
    up, down = sizing.rounded_up(nbytes), sizing.rounded_down(nbytes)
    assert nbytes <= up <= max(sizing.MEGABYTE, 1.5 * nbytes)
    assert down <= max(sizing.MEGABYTE, nbytes)
    assert [parse_bytes("memory_limit", sizing.written(each)) for each in (up, down)] == [up, down]


@given(st.integers(1, 10**9))
def test_whole_megabytes_are_written_without_loss(megabytes: int) -> None:
    nbytes = megabytes * sizing.MEGABYTE
    assert abs(parse_bytes("memory_limit", sizing.written(nbytes)) - nbytes) <= 1  # a float's last bit


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (sizing.written(1_500_000_000), "1.5GB"),
        (sizing.written(120_000_000), "120MB"),
    ],
)
def test_numbers_read_well(said: str, words: str) -> None:
    assert said == words


@given(st.floats(0, 1e6))
def test_round_seconds_are_no_less(value_s: float) -> None:
    assert sizing.rounded_up_s(value_s) >= value_s


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_spread_is_in_order(numbers: list[float]) -> None:
    spread = Spread.of(numbers)
    assert min(numbers) <= spread.median <= spread.p99 <= spread.max == max(numbers)


class _Hostile:
    @property
    def nbytes(self) -> int:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("thing", "nbytes"),
    [
        (b"1234", 4),
        ({"a": b"12", "b": [b"3", b"4"]}, 4),
        ((b"12",) * 5000, 10_000),
        ([], 0),
        (_Hostile(), 0),
        (memoryview(b"123456"), 6),
    ],
)
def test_the_size_of_a_sample_is_that_of_its_parts(thing: object, nbytes: int) -> None:
    """Of a long list its beginning is looked at; one that cannot be asked counts nothing."""
    assert footprint.nbytes_of(thing) == nbytes


def test_a_sample_that_holds_itself_has_a_size() -> None:
    loop: list[object] = [b"12"]
    loop.append(loop)
    assert footprint.nbytes_of(loop) > 0


def test_the_peak_of_a_process_is_read_and_forgotten() -> None:
    """Where there is /proc; elsewhere nothing is known."""
    if footprint.read() is None:
        pytest.skip("there is no /proc here")
    block = bytearray(b"1") * (64 << 20)
    del block
    before = footprint.read()
    footprint.forget_peak()
    after = footprint.read()
    assert before is not None
    assert after is not None
    assert before.peak_bytes >= 64 << 20
    assert after.peak_bytes <= before.peak_bytes


def curve(rates_by_workers: dict[int, float]) -> list[Point]:
    """0 workers are reckoned."""
    return [Point(count, rate, rate, rate, 9, 1, is_computed=not count) for count, rate in rates_by_workers.items()]


@pytest.mark.parametrize(
    ("rates_by_workers", "course", "words"),
    [
        ({0: 900.0, 1: 100.0, 2: 90.0}, Course(60, 32), "with num_workers=0, would give 900 batches/s"),
        ({1: 10.0, 2: 20.0}, Course(60, 32), "2 workers are the most that were tried"),
        ({1: 10.0, 2: 20.0}, Course(5, 32, (4, 8)), "There was no time for 4, 8 workers"),
        ({1: 10.0, 2: 10.0}, Course(5, 8), "Measured with batches of 8, counted as batches of 32"),
        ({1: 10.0, 2: 10.0}, Course(60, 32, (), 3.2), "Every sample was loaded about 3 times"),
    ],
)
def test_what_else_there_is_to_know_is_said(rates_by_workers: dict[int, float], course: Course, words: str) -> None:
    (note,) = notes(Setting(32), curve(rates_by_workers), 2, course)
    assert words in note


def test_where_there_is_nothing_to_know_nothing_is_said() -> None:
    """Also where loading in the training process seems faster, but takes long: workers load beside the step."""
    assert notes(Setting(32), curve({0: 12.0, 1: 9.0, 2: 9.1}), 1, Course(60, 32, (), 0.5)) == []
