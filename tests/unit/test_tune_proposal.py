"""From what was measured to what is proposed: every number has its bounds, and its reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.sizes import parse_budget, parse_bytes
from holdfast.tasks.tune.facts import Machine, Measured, Point, Samples, Setting, Spread
from holdfast.tasks.tune.proposal import (
    CROWD_GAIN,
    CROWD_WAITING,
    LIMIT_LEAST_TIMES,
    MOST_AHEAD,
    ROOM_SHARE,
    TIMEOUT_LEAST_S,
    TIMEOUT_TIMES,
    Need,
    Proposal,
    propose,
)
from holdfast.tasks.tune.rates import GAIN, worker_counts

GB, MB = 10**9, 10**6


def samples(**changed: Any) -> Samples:
    some = Samples(
        count=500,
        seconds=Spread(0.010, 0.015, 0.020),
        mean_s=0.010,
        first_s=0.030,
        waiting_share=0.0,
        sample_bytes=Spread(600_000, 600_000, 600_000),
        batch_bytes=20 * MB,
        collate_s=0.004,
        peak_bytes=60 * MB,
        start_bytes=10 * MB,
    )
    return dataclasses.replace(some, **changed)


def curve(rates: dict[int, float]) -> tuple[Point, ...]:
    return tuple(Point(number, rate, rate, rate, 50, 1) for number, rate in rates.items())


def measured(
    rates: dict[int, float],
    *,
    cpus: int = 4,
    left: int | None = 32 * GB,
    step_s: float | None = None,
    repeats: bool = False,
    **of_samples: Any,
) -> Measured:
    machine, setting = Machine(cpus, left), Setting(32, step_s)
    return Measured(machine, setting, samples(**of_samples), curve(rates), repeats)


RISING = {1: 10.0, 2: 20.0, 4: 39.0, 8: 40.0}


def test_the_fewest_workers_that_are_as_fast_as_the_best() -> None:
    """What gains less than a twentieth is no gain."""
    advice = propose(measured({1: 10.0, 2: 19.6, 4: 20.0})).num_workers
    assert advice.value == 2
    assert "2 gave 19.6/s" in advice.reason
    assert "4 gave 20/s" in advice.reason


def test_more_workers_than_cpus_need_samples_that_wait() -> None:
    """On a busy machine they only seem to gain: they take CPUs from others."""
    twice = {1: 10.0, 2: 20.0, 4: 40.0, 8: 70.0}
    computing, waiting = propose(measured(twice)), propose(measured(twice, waiting_share=0.9))
    assert computing.num_workers.value == 4
    assert "more than there are CPUs" in computing.num_workers.reason
    assert waiting.num_workers.value == 8
    assert "wait 90% of their time" in waiting.num_workers.reason


def test_enough_workers_for_the_step_and_no_more() -> None:
    """Between two that were measured the rate is taken to rise evenly; a fifth is to spare."""
    advice = propose(measured({1: 10.0, 2: 20.0, 4: 40.0, 8: 80.0}, cpus=8, step_s=0.04)).num_workers
    assert advice.value == 3  # 25 batches/s, and a fifth: 30
    assert "a step of 40 ms takes 25 batches/s" in advice.reason
    assert "so 3 are enough" in advice.reason


def test_one_worker_is_enough_for_a_slow_step() -> None:
    advice = propose(measured(RISING, step_s=10.0)).num_workers
    assert advice.value == 1
    assert "a step of 10 s takes 0.1 batches/s" in advice.reason


def test_a_step_that_no_loader_feeds_is_told_so() -> None:
    """With the share of its pace that it will have."""
    advice = propose(measured(RISING, step_s=0.01)).num_workers
    assert advice.value == 4
    assert "the step would get 39% of that" in advice.reason


def test_a_step_that_is_just_fed_is_told_so() -> None:
    advice = propose(measured(RISING, step_s=1 / 38)).num_workers
    assert (advice.value, "with little to spare" in advice.reason) == (4, True)


def test_workers_that_repeat_each_other_are_not_proposed() -> None:
    """Of an iterable dataset that does not divide its elements: what to do is said."""
    advice = propose(measured({1: 10.0, 2: 20.0}, repeats=True)).num_workers
    assert advice.value == 1
    assert "get_worker_info" in advice.reason


def test_no_more_workers_than_fit_in_memory() -> None:
    """And how much more would need is said."""
    advice = propose(measured(RISING, left=3 * GB, peak_bytes=800 * MB)).num_workers
    assert advice.value == 2
    assert "4 would need" in advice.reason
    assert "3 GB are left" in advice.reason


def test_workers_that_were_not_tried_for_want_of_memory_are_named() -> None:
    seen = dataclasses.replace(measured({1: 10.0, 2: 20.0}, left=3 * GB, peak_bytes=800 * MB), too_many=4)
    assert "4 would need 3.44 GB, and 3 GB are left" in propose(seen).num_workers.reason


def test_where_not_even_one_fits_it_is_said() -> None:
    proposal = propose(measured(RISING, left=500 * MB, peak_bytes=800 * MB))
    assert proposal.num_workers.value == 1
    assert "memory is short" in proposal.num_workers.reason
    assert "loaded one at a time" in proposal.memory_budget.reason


def test_batches_are_loaded_ahead_of_the_slowest_sample() -> None:
    """Two for each worker, unless one sample takes as long as more of them last; eight at most."""
    usual = propose(measured(RISING))
    slow = propose(measured(RISING, seconds=Spread(0.01, 0.2, 0.4)))
    far_too_slow = propose(measured(RISING, seconds=Spread(0.01, 0.2, 60.0)))
    assert [each.prefetch_factor.value for each in (usual, slow, far_too_slow)] == [2, 5, MOST_AHEAD]
    assert "the slowest sample took 400 ms, the median one 10 ms" in slow.prefetch_factor.reason
    assert "to never wait for such a one" in far_too_slow.prefetch_factor.reason


def test_no_more_batches_ahead_than_fit_in_memory() -> None:
    proposal = propose(measured(RISING, left=6 * GB, batch_bytes=400 * MB, seconds=Spread(0.01, 0.2, 2.0)))
    assert proposal.prefetch_factor.value == 2
    assert "do not fit in memory" in proposal.prefetch_factor.reason


def test_memory_that_cannot_be_measured_gets_no_limit() -> None:
    proposal = propose(measured(RISING, left=None, peak_bytes=None, start_bytes=None))
    assert (proposal.memory_limit.value, proposal.memory_budget.value) == (None, "80%")
    assert list(proposal.arguments()) == ["num_workers", "prefetch_factor", "memory_budget", "sample_timeout"]


def test_a_timeout_is_far_above_the_slowest_sample() -> None:
    """Ten seconds at least: a disk that stalls is no hang. The first sample of a worker counts."""
    quick, slow = propose(measured(RISING)), propose(measured(RISING, first_s=2.0))
    assert (quick.sample_timeout.value, slow.sample_timeout.value) == (10, 45)
    assert "slowest of" not in slow.sample_timeout.reason
    assert "the first sample of a worker took 2 s" in slow.sample_timeout.reason


# -- whatever is measured ------------------------------------------------------------------------------------------


@st.composite
def anything(draw: st.DrawFn) -> Measured:
    cpus = draw(st.integers(1, 128))
    counts = worker_counts(cpus, draw(st.none() | st.integers(1, 300)))
    counts = counts[: draw(st.integers(1, len(counts)))]
    rates = st.floats(1e-3, 1e5)
    times = sorted(draw(st.tuples(*[st.floats(0, 500)] * 3)))
    sizes = sorted(draw(st.tuples(*[st.integers(0, 10**10)] * 3)))
    maybe_bytes = st.none() | st.integers(0, 10**11)
    return Measured(
        Machine(cpus, draw(st.none() | st.integers(0, 10**13))),
        Setting(draw(st.integers(1, 4096)), draw(st.none() | st.floats(1e-4, 1e3))),
        Samples(
            count=draw(st.integers(1, 20_000)),
            seconds=Spread(*times),
            mean_s=draw(st.floats(0, times[2])),
            first_s=draw(st.floats(0, 1000)),
            waiting_share=draw(st.floats(0, 1)),
            sample_bytes=Spread(*sizes),
            batch_bytes=draw(maybe_bytes),
            collate_s=draw(st.none() | st.floats(0, 10)),
            peak_bytes=draw(maybe_bytes),
            start_bytes=draw(maybe_bytes),
        ),
        curve({count: draw(rates) for count in counts}),
        draw(st.booleans()),
    )


@given(anything())
def test_whatever_is_measured_workers_stay_within_bounds(seen: Measured) -> None:
    """No more than were measured, than fit in memory, nor than there are CPUs, unless waiting samples gain by it."""
    number, need = chosen(propose(seen)), Need(seen)
    assert 1 <= number <= max(point.num_workers for point in seen.curve)
    assert number == 1 or need.fits(number)
    if number > seen.machine.cpus:
        fitting = [point for point in seen.curve if need.fits(point.num_workers)]
        within = max(point.batches_per_s for point in fitting if point.num_workers <= seen.machine.cpus)
        assert max(point.batches_per_s for point in fitting) >= CROWD_GAIN * within
        assert seen.samples.waiting_share >= CROWD_WAITING
    if seen.repeats_elements:
        assert number == 1


@given(anything())
def test_whatever_is_measured_none_within_the_cpus_is_much_faster(seen: Measured) -> None:
    """Without a step the proposed number is within a twentieth of the best that fits and has a CPU each."""
    need = Need(seen)
    if seen.setting.step_s is not None or seen.repeats_elements or not need.fits(1):
        return
    number = chosen(propose(seen))
    rate = next(point.batches_per_s for point in seen.curve if point.num_workers == number)
    others = [p for p in seen.curve if p.num_workers <= seen.machine.cpus and need.fits(p.num_workers)]
    assert GAIN * rate >= max(point.batches_per_s for point in others)


@given(anything())
def test_whatever_is_measured_limits_leave_headroom(seen: Measured) -> None:
    """Above the peak by half at least; the budget within four fifths of what is left, and enough where it can be."""
    proposal, need, peak = propose(seen), Need(seen), seen.samples.peak_bytes
    limit, budget = proposal.memory_limit.value, proposal.memory_budget.value
    assert (limit is None) == (peak is None)
    if limit is not None and peak is not None:
        assert parse_bytes("memory_limit", limit) >= LIMIT_LEAST_TIMES * peak
    nbytes = parse_budget("memory_budget", budget)
    left, ahead = seen.machine.left_bytes, proposal.prefetch_factor.value
    assert isinstance(ahead, int)
    if left is None:
        assert budget == "80%"
        return
    assert nbytes <= max(MB, ROOM_SHARE * left)
    if need.fits(chosen(proposal), ahead):
        assert nbytes >= min(need.total_bytes(chosen(proposal), ahead) - MB, ROOM_SHARE * left - MB)


@given(anything())
def test_whatever_is_measured_the_rest_is_sensible_and_has_a_reason(seen: Measured) -> None:
    """A timeout far above the slowest sample; one to eight batches ahead; a sentence for each number."""
    proposal = propose(seen)
    timeout, ahead = proposal.sample_timeout.value, proposal.prefetch_factor.value
    assert isinstance(timeout, int)
    assert timeout >= max(TIMEOUT_LEAST_S, TIMEOUT_TIMES * seen.samples.slowest_s)
    assert isinstance(ahead, int)
    assert 1 <= ahead <= MOST_AHEAD
    for name in Proposal.__slots__:
        reason = getattr(proposal, name).reason
        assert len(reason) > 20
        assert "\n" not in reason


def chosen(proposal: Proposal) -> int:
    assert isinstance(proposal.num_workers.value, int)
    return proposal.num_workers.value


@pytest.mark.parametrize("word", ["quarantine", "verdict", "heartbeat", "lease "])
def test_reasons_are_in_plain_words(word: str) -> None:
    proposal = propose(measured(RISING, step_s=0.05))
    assert all(word not in getattr(proposal, name).reason for name in Proposal.__slots__)
