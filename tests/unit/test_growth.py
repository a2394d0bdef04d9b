"""A leak is told from what only warms up, in whatever readings."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.memory.growth import Growth, Trend

MB = 1 << 20
START = 200 * MB


def trend(memory: Callable[[int], float], samples: int, step: int = 1) -> Trend:
    """Of a process that has `memory(k)` after k samples."""
    found = Trend()
    for k in range(0, samples, step):
        found.saw(k, START + int(memory(k)))
    return found


def test_a_leak_is_found_with_its_rate() -> None:
    growth = trend(lambda k: 3 * MB * k, 300).growth()
    assert growth is not None
    assert growth.bytes_per_sample == pytest.approx(3 * MB, rel=0.1)
    assert growth.grown_bytes == pytest.approx(3 * MB * 300, rel=0.1)
    assert growth.samples == pytest.approx(300, abs=10)


WARM_UPS: dict[str, Callable[[int], float]] = {
    "nothing": lambda k: 0,
    "a jump at the start": lambda k: 500 * MB if k > 3 else 0,
    "a cache of 100 samples": lambda k: 5 * MB * min(k, 100),
    "an allocator that levels off": lambda k: 800 * MB * (1 - math.exp(-k / 80)),
    "what comes and goes": lambda k: 400 * MB * (k % 7 == 0),
    "a saw": lambda k: 4 * MB * (k % 50),
    "a little": lambda k: 10_000 * k,
    "it shrinks": lambda k: -0.1 * MB * k,
}


@pytest.mark.parametrize("name", WARM_UPS)
def test_what_is_no_leak_is_not_called_one(name: str) -> None:
    assert trend(WARM_UPS[name], 800).growth() is None


def test_it_takes_some_readings_to_be_sure() -> None:
    assert trend(lambda k: 100 * MB * k, 15).growth() is None
    assert trend(lambda k: 100 * MB * k, 16).growth() is not None


def test_a_leak_that_begins_late_is_found_in_the_end() -> None:
    late = trend(lambda k: 2 * MB * max(0, k - 200), 2000)
    assert late.growth() is not None


@settings(deadline=None)
@given(
    rate_mb=st.floats(0.2, 50),
    samples=st.integers(400, 5000),
    step=st.integers(1, 8),
    noise_mb=st.floats(0, 20),
    seed=st.integers(0, 100),
)
def test_a_steady_leak_is_found_through_noise(
    rate_mb: float, samples: int, step: int, noise_mb: float, seed: int
) -> None:
    """Noise goes up only: something is in hand when it is looked at. It is less than what leaks in a quarter."""
    rng = random.Random(seed)
    noise = min(noise_mb, rate_mb * samples / 40) * MB
    growth = trend(lambda k: rate_mb * MB * k + rng.uniform(0, noise), samples, step).growth()
    assert growth is not None
    assert growth.bytes_per_sample == pytest.approx(rate_mb * MB, rel=0.4)


@settings(deadline=None)
@given(
    size_mb=st.floats(0, 4000),
    samples=st.integers(100, 5000),
    step=st.integers(1, 8),
    after=st.floats(0.01, 0.24),
    noise_mb=st.floats(0, 500),
    seed=st.integers(0, 100),
)
def test_what_has_filled_within_the_first_quarter_is_no_leak(
    *, size_mb: float, samples: int, step: int, after: float, noise_mb: float, seed: int
) -> None:
    """Every third reading, at least, is one with nothing in hand."""
    rng, turn = random.Random(seed), itertools.cycle([0, 1, 1])

    def memory(k: int) -> float:
        return size_mb * MB * min(1.0, k / (after * samples)) + next(turn) * rng.uniform(0, noise_mb * MB)

    assert trend(memory, samples, step).growth() is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1 << 40)), max_size=400))
def test_whatever_is_seen_it_stays_small_and_says_something_sensible(steps: list[tuple[int, int]]) -> None:
    found, samples = Trend(), 0
    for more, nbytes in steps:
        samples += more
        found.saw(samples, nbytes)
    assert len(found._points) <= 64
    growth = found.growth()
    assert growth is None or (isinstance(growth, Growth) and growth.bytes_per_sample > 0)
