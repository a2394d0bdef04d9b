"""How large the next batches are taken to be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.transport.forecast import SizeForecast

WINDOW = 4


def expected(first_guess: int, sizes: list[int]) -> int:
    """The largest of the unfinished window and the one before it; in the first window the guess counts too."""
    finished = len(sizes) // WINDOW
    if finished == 0:
        return max([first_guess, *sizes])
    return max(sizes[(finished - 1) * WINDOW :])


@given(first_guess=st.integers(0, 100), sizes=st.lists(st.integers(0, 200), max_size=6 * WINDOW))
def test_the_forecast_is_the_largest_of_the_last_one_to_two_windows(first_guess: int, sizes: list[int]) -> None:
    """After every batch: what is older than two windows is forgotten, what is younger than one is not."""
    forecast = SizeForecast(first_guess, window=WINDOW)
    assert forecast.nbytes == first_guess
    for count, nbytes in enumerate(sizes, start=1):
        before = forecast.nbytes
        expects_less = forecast.saw(nbytes)
        assert forecast.nbytes == expected(first_guess, sizes[:count])
        assert expects_less == (forecast.nbytes < before)


def test_a_larger_batch_counts_at_once() -> None:
    """The batch after a large one already gets a large slot."""
    forecast = SizeForecast(10)
    forecast.saw(10_000)
    assert forecast.nbytes == 10_000


def test_a_single_large_batch_is_forgotten() -> None:
    """One batch out of the ordinary does not hold memory for the rest of the epoch."""
    forecast = SizeForecast(10, window=WINDOW)
    forecast.saw(10_000)
    for _ in range(2 * WINDOW):
        forecast.saw(3)
    assert forecast.nbytes == 3
