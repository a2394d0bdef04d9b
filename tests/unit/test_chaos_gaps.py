"""How the gaps of kills are counted in `make chaos`."""

from __future__ import annotations

import pytest
from chaos.family import Role
from chaos.gaps import Spread, gaps_by_sort, spread
from chaos.killer import Kill


def kill(time_s: float, role: Role = "worker", number: str = "SIGKILL", beside_stopped: bool = False) -> Kill:
    return Kill(time_s, time_s, 1, role, number, beside_stopped)


def gaps(kills: list[Kill], *epochs: list[float], capacity: int = 2) -> dict[str, list[float]]:
    found = gaps_by_sort(kills, epochs, capacity, unit_s=0.5)
    return {sort: [round(gap.gap_s, 6) for gap in measured] for sort, measured in found.items()}


def test_a_gap_is_the_longest_interval_until_all_that_was_under_way_has_come() -> None:
    """Two units are under way: what comes after the third delivery is not this kill's."""
    assert gaps([kill(1.5)], [0, 1, 2, 5, 6, 16]) == {"worker": [3]}


def test_a_gap_is_the_longer_interval_that_the_kill_falls_into() -> None:
    """It began before the kill and is counted whole."""
    assert gaps([kill(1.5)], [0, 1, 9, 10, 11]) == {"worker": [8]}


def test_the_time_that_a_process_takes_to_die_counts() -> None:
    """Two more deliveries come from it, or past it, before it is gone: as many as were under way come after those."""
    slow_to_die = Kill(0.5, 2.5, 1, "worker", "SIGKILL", supervisor_is_stopped=False)
    assert gaps([slow_to_die], [0, 1, 2, 3, 4, 9, 19]) == {"worker": [5]}


@pytest.mark.parametrize("time_s", [-1.0, 2.5, 8.0])
def test_a_kill_outside_of_deliveries_has_no_gap(time_s: float) -> None:
    """Before the first batch, between epochs, after the last."""
    assert gaps([kill(time_s)], [0, 1, 2], [4, 5, 6]) == {}


@pytest.mark.parametrize(
    ("slower", "sort"),
    [
        (kill(0.5, "supervisor"), "supervisor"),
        (kill(0.5, number="SIGSTOP"), "worker, stopped"),
        (kill(0.5, beside_stopped=True), "worker, beside a stopped supervisor"),
    ],
)
def test_a_kill_beside_a_slower_one_has_no_gap(slower: Kill, sort: str) -> None:
    """What would be measured is the slower one's, also if that came first."""
    assert gaps([slower, kill(1.5)], [0, 1, 2, 5, 6]) == {sort: [3]}


def test_the_gap_above_is_what_the_lost_unit_does_not_explain() -> None:
    (measured,) = gaps_by_sort([kill(0.5)], [[0, 2, 3]], 1, unit_s=0.5)["worker"]
    assert measured.above_s == 1.5


def test_a_spread_is_median_p95_and_worst() -> None:
    assert spread(range(1, 101)) == Spread(50, 95, 100)
    assert spread([3]) == Spread(3, 3, 3)
    assert spread([]) is None
