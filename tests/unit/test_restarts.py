"""When a lost worker is started again, and when that is given up."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workers.restarts import WINDOW_S, RestartWindow, starts_again

KILLED, TERMINATED, CRASHED, EXITED, ENDED = -signal.SIGKILL, -signal.SIGTERM, -signal.SIGSEGV, 1, 0


@pytest.mark.parametrize(
    ("exitcode", "deaths", "max_restarts", "again"),
    [
        (KILLED, 1, 3, True),
        (TERMINATED, 3, 3, True),
        (-signal.SIGINT, 3, 3, True),
        (-signal.SIGHUP, 3, 3, True),
        (KILLED, 3, 3, True),
        (KILLED, 4, 3, False),
        (KILLED, 1, 1, True),
        (KILLED, 2, 1, False),
        (KILLED, 1, 0, False),
        (CRASHED, 1, 3, False),
        *((-number, 1, 3, False) for number in (signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)),
        (EXITED, 1, 3, False),
        (ENDED, 1, 3, False),
    ],
)
def test_where_none_was_ever_ready_only_a_kill_from_outside_is_forgiven(
    exitcode: int, deaths: int, max_restarts: int, again: bool
) -> None:
    """Up to max_restarts in a row. After a fault of its own the next would die of the same import, and the user waits
    for the news.
    """
    assert starts_again(exitcode, deaths, max_restarts, has_been_ready=False) is again


@pytest.mark.parametrize(("deaths", "max_restarts", "again"), [(1, 3, True), (2, 3, False), (1, 0, False)])
def test_where_none_was_ever_ready_a_kill_for_want_of_memory_is_forgiven_once(
    deaths: int, max_restarts: int, again: bool
) -> None:
    """What workers start with takes too much, unless there is room by now."""
    assert starts_again(KILLED, deaths, max_restarts, has_been_ready=False, is_for_memory=True) is again


@pytest.mark.parametrize("exitcode", [KILLED, TERMINATED, CRASHED, EXITED, ENDED])
@pytest.mark.parametrize(
    ("deaths", "max_restarts", "again"), [(1, 3, True), (3, 3, True), (4, 3, False), (1, 0, False), (1, 1, True)]
)
def test_where_one_was_ready_a_death_at_the_start_is_bad_luck(
    exitcode: int, deaths: int, max_restarts: int, again: bool
) -> None:
    """However it died: what workers start with is known to be good. Up to max_restarts in a row."""
    assert starts_again(exitcode, deaths, max_restarts, has_been_ready=True) is again


def deaths(max_restarts: int, *times: float) -> list[bool]:
    window = RestartWindow(max_restarts)
    return [window.is_exceeded_by_death_at(now) for now in times]


def test_deaths_within_a_minute_are_counted() -> None:
    """Three restarts are allowed: the fourth death is one too many."""
    assert deaths(3, 0, 1, 2, 3) == [False, False, False, True]


def test_deaths_that_are_spread_out_are_forgiven() -> None:
    """One in every half minute, for ever."""
    assert not any(deaths(3, *range(0, 3000, 30)))


def test_old_deaths_are_forgotten_one_by_one() -> None:
    """The window slides; it is not emptied."""
    assert deaths(2, 0, 50, 61, 109, 111.5) == [False, False, False, True, True]


def test_a_minute_is_a_minute_with_its_end() -> None:
    """Exactly sixty seconds after the first is still within."""
    assert deaths(1, 10, 10 + WINDOW_S) == [False, True]
    assert deaths(1, 10, 10 + WINDOW_S + 0.001) == [False, False]


def test_with_no_restarts_allowed_the_first_death_is_too_many() -> None:
    """max_restarts=0."""
    assert deaths(0, 123.0) == [True]


@given(max_restarts=st.integers(0, 5), gaps=st.lists(st.floats(0, 40), max_size=30))
def test_the_window_is_exceeded_when_it_holds_more_deaths_than_restarts(max_restarts: int, gaps: list[float]) -> None:
    """Counted anew, from all deaths."""
    now, times, window = 1000.0, list[float](), RestartWindow(max_restarts)
    for gap in gaps:
        now += gap
        times.append(now)
        within = [time for time in times if now - time <= WINDOW_S]
        assert window.is_exceeded_by_death_at(now) == (len(within) > max_restarts)
