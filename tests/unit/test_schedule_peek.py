"""Asking what comes next changes nothing: after an interrupt it is asked again."""

from __future__ import annotations

import pytest

from holdfast.loader.schedule import Schedule


@pytest.mark.parametrize("in_order", [True, False])
def test_asking_for_the_next_step_twice_gives_the_same_unit(in_order: bool) -> None:
    """A finished unit stays until it has been delivered, in order or not; delivering it twice is harmless."""
    schedule = Schedule(2, 2, in_order=in_order)
    for _ in range(2):
        schedule.assign()
    schedule.arrived(0)
    schedule.arrived(1)
    assert [schedule.next_step(), schedule.next_step()] == [0, 0]
    schedule.delivered(0)
    schedule.delivered(0)
    assert schedule.next_step() == 1
