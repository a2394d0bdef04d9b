"""When a worker that died is worth another life."""

from __future__ import annotations

import pytest

from holdfast.workers.board import Phase
from holdfast.workers.restarts import StartingDeaths

STARTING, FETCH = Phase.STARTING, Phase.FETCH


@pytest.mark.parametrize(
    ("phases", "worth"),
    [
        ([STARTING], [True]),
        ([STARTING, STARTING], [True, False]),
        ([STARTING, FETCH, STARTING], [True, True, True]),
        ([FETCH] * 5, [True] * 5),
    ],
)
def test_two_deaths_in_a_row_before_it_was_ready_are_enough(phases: list[Phase], worth: list[bool]) -> None:
    """An outside kill in the first moments must not end an epoch; a crash on import must not be repeated for ever."""
    deaths = StartingDeaths()
    assert [deaths.is_worth_another(0, phase) for phase in phases] == worth


def test_each_worker_is_judged_alone() -> None:
    """All may be killed once while they start."""
    deaths = StartingDeaths()
    assert all(deaths.is_worth_another(worker_id, STARTING) for worker_id in range(4))
