"""Units of workers that were let go: they come back, and get what they had been sent in the order of that."""

from __future__ import annotations

from typing import Any

from holdfast.loader.rations import Rations
from holdfast.loader.schedule import Schedule
from holdfast.loader.units import UnitState


class Fakes:
    """All that rations talk to: two workers, of which the second has an index from its start, and takes up its work."""

    retired: set[int]
    is_unbound = False

    def __init__(self) -> None:
        self.retired = set()
        self.ordered: list[int] = []
        self.sent_away: list[int] = []
        self.states = {unit: UnitState(b"", worker_id) for unit, worker_id in ((0, 0), (1, 1), (3, 1), (5, 1))}
        self.rations: Rations

    # of the units
    def __getitem__(self, unit: int) -> UnitState:
        return self.states[unit]

    def __contains__(self, unit: int) -> bool:
        return unit in self.states

    def loading(self) -> list[int]:
        return [unit for unit in self.states if unit not in self.ordered]

    # of the allowance
    def retire_all_but(self, worker_id: int) -> list[int]:
        others = {0, 1} - {worker_id} - self.retired
        self.retired |= others
        return list(others)

    def has_begun(self, worker_id: int) -> bool:
        return worker_id == 1

    def took_back(self, worker_id: int) -> None:
        self.retired.discard(worker_id)

    # of the backend
    def retire(self, worker_id: int) -> None:
        self.sent_away.append(worker_id)

    def bring_back(self, worker_id: int) -> None: ...

    # what workers are told
    def order(self, unit: int) -> None:
        self.ordered.append(unit)

    def carry_on(self, worker_id: int) -> None:
        for unit in (1, 3, 5):
            if not self.rations.holds_back(unit):
                self.order(unit)


def one_to_be_alone() -> Any:
    """A unit of the first worker is, and three of the second, which has died, wait for it."""
    fakes: Any = Fakes()
    rations = fakes.rations = Rations(fakes, fakes, fakes, fakes)
    rations.begin_epoch(Schedule(2, 3, in_order=True))
    fakes.states[0].alone = True
    for state in fakes.states.values():
        state.slot = object()  # of the worker that died
    for unit in (0, 1, 3, 5):
        assert rations.holds_back(unit)
    rations.order_held()
    assert fakes.ordered == []
    assert fakes.sent_away == [1]
    return fakes


def test_a_worker_that_was_let_go_gets_its_units_in_order() -> None:
    """When it is back, after the one that was loaded alone."""
    fakes = one_to_be_alone()
    assert fakes.rations.saw_end(1, replaced=False)
    fakes.rations.order_held()
    assert fakes.ordered == [0, 1, 3, 5]


def test_one_that_was_replaced_before_it_was_told_to_go_is_sent_away_as_well() -> None:
    """It would be there, and its death, when it comes, that of one that is not replaced."""
    fakes = one_to_be_alone()
    assert fakes.rations.saw_end(1, replaced=True)
    assert fakes.rations.is_letting_go
    assert fakes.sent_away == [1, 1]
    assert fakes.rations.saw_end(1, replaced=False)
    assert not fakes.rations.is_letting_go
    assert not fakes.rations.saw_end(1, replaced=False)  # nobody told it to
