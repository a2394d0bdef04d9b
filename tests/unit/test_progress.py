"""How far each worker has come by its own word, and what its replacement is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from holdfast.loader.progress import WorkersProgress
from holdfast.loader.units import Units
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import WorkerBackend
from holdfast.workers.messages import Aside, Epoch, Progress, unpack_progress

from .readings import count_from_here, memory_in_use, segments

EPOCH = Epoch(None, 5)


class Told:
    """Stands for a backend: notes what it is to tell a new life."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes, Slot | None]] = []

    def restore(self, *message: Any) -> None:
        self.messages.append(cast(Any, message))

    def last(self) -> tuple[Epoch, Progress]:
        _, data, slot = self.messages[-1]
        return unpack_progress(slot.peek(0, slot.nbytes) if slot is not None else data)


class Case:
    def __init__(self, unit_size: int = 8) -> None:
        count_from_here()
        self.pool, self.told = SlotPool(warm_slots=0), Told()
        backend = cast(WorkerBackend, self.told)
        self.progress = WorkersProgress(2, unit_size, Units(self.pool, backend), self.pool, backend)
        self.first_unit = 0
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.first_unit += 100
        self.progress.begin_epoch(EPOCH, self.first_unit)

    def heard(self, worker_id: int, units: int, *, now: bool = True, **parts: Any) -> None:
        facts = {"generators": {}, "at_epoch_start": {}, "elements": 8 * units, "stream_state": b"", "bad": ()}
        unit = self.first_unit if now else self.first_unit - 1
        self.progress.heard(worker_id, unit, Aside(**{**facts, "units": units, **parts}))

    def restored(self, worker_id: int, *, goes_on: bool = True) -> Progress:
        self.progress.restore(worker_id, pytest.fail, goes_on=goes_on)  # nothing was sent that could be issued again
        assert self.told.messages[-1][0] == worker_id
        epoch, progress = self.told.last()
        assert epoch == EPOCH
        return progress


@pytest.fixture
def case() -> Iterator[Case]:
    case = Case()
    yield case
    case.progress.close()
    case.pool.close()
    assert segments() == {}


def test_a_worker_that_has_said_nothing_is_replaced_by_one_that_starts(case: Case) -> None:
    """It is told the epoch, and how large units are."""
    assert case.restored(1) == Progress({}, {}, unit_size=8)


def test_a_replacement_is_told_what_its_own_predecessor_said_last(case: Case) -> None:
    """And nothing of the other worker's."""
    case.heard(0, 1, generators={"torch": b"a", "numpy": b"n"}, at_epoch_start={"torch": b"0"}, stream_state=b"s1")
    case.heard(1, 7, generators={"torch": b"x"})
    case.heard(0, 2, generators={"torch": b"b"}, stream_state=b"s2")
    generators = {"torch": b"b", "numpy": b"n"}
    state = {"stream_state": b"s2", "state_units": 2, "state_elements": 16, "at_state": generators}
    assert case.restored(0) == Progress(generators, {"torch": b"0"}, 2, 16, unit_size=8, **state)
    assert (case.progress.elements(0), case.progress.elements(1)) == (16, 56)


def test_a_state_stays_that_of_the_unit_it_came_with(case: Case) -> None:
    """With its random numbers: those of a generator that nobody had used by then are those of the epoch's start."""
    at_epoch_start = {"torch": b"0", "random": b"r"}
    case.heard(0, 2, generators={"torch": b"a"}, at_epoch_start=at_epoch_start, stream_state=b"s")
    case.heard(0, 3, generators={"torch": b"b", "random": b"q"})
    case.heard(0, 4, generators={"torch": b"c"})
    told = case.restored(0)
    assert (told.units, told.elements, told.generators) == (4, 32, {"torch": b"c", "random": b"q"})
    assert (told.stream_state, told.state_units, told.state_elements) == (b"s", 2, 16)
    assert told.at_state == {"torch": b"a", "random": b"r"}
    case.begin_epoch()
    assert case.restored(0).stream_state == b""


def test_with_a_new_epoch_iterables_start_anew_and_random_numbers_go_on(case: Case) -> None:
    """As in torch, workers are not seeded again."""
    case.heard(0, 3, generators={"torch": b"a"}, at_epoch_start={"torch": b"0"}, stream_state=b"s")
    case.begin_epoch()
    assert case.restored(0) == Progress({"torch": b"a"}, {}, unit_size=8)
    assert case.progress.elements(0) == 0


def test_what_comes_late_of_the_epoch_before_changes_random_numbers_only(case: Case) -> None:
    """A persistent worker that finishes what nobody waits for any more."""
    case.heard(0, 1, generators={"torch": b"a"})
    case.heard(0, 9, generators={"torch": b"b"}, stream_state=b"old", at_epoch_start={"torch": b"old"}, now=False)
    assert case.restored(0) == Progress({"torch": b"b"}, {}, 1, 8, unit_size=8)


def test_a_unit_whose_collation_kills_is_passed_over_each_in_its_place(case: Case) -> None:
    """The elements are taken, not collated; the state is that before it."""
    case.heard(0, 2, stream_state=b"s")
    case.progress.pass_over_collate(0, 8)
    state = {"stream_state": b"s", "state_units": 2, "state_elements": 16, "at_state": {}}
    assert case.restored(0) == Progress({}, {}, 3, 16, unit_size=8, uncollated=(2,), passed=8, **state)
    case.heard(0, 4)
    case.progress.pass_over_collate(0, 8)
    assert case.restored(0).uncollated == (2, 4)
    case.begin_epoch()
    assert case.restored(0).uncollated == ()


def test_elements_of_units_that_were_passed_over_count(case: Case) -> None:
    """The next ones, and those of the unit that is heard of then, come after them."""
    case.heard(0, 2)
    for elements in (24, 32):
        case.progress.pass_over_collate(0, 8)
        assert case.progress.elements(0) == elements
    case.heard(0, 5)
    assert case.progress.last_elements(0) == range(32, 40)
    assert case.progress.elements(0) == 40


def test_an_iterable_that_has_ended_is_not_run_again(case: Case) -> None:
    """Its worker lives on for the next epoch, with its random numbers."""
    case.heard(0, 3, generators={"torch": b"a"}, at_epoch_start={"torch": b"0"}, stream_state=b"s")
    told = case.restored(0, goes_on=False)
    assert told.has_ended
    assert told.generators == {"torch": b"a"}


def test_an_iterable_that_ended_with_its_last_batch_is_not_run_again(case: Case) -> None:
    """Its worker was lost before it could say so with a unit of its own. In the next epoch it starts anew."""
    case.heard(0, 3, has_ended=True)
    assert case.restored(0).has_ended
    assert not case.restored(1).has_ended
    case.begin_epoch()
    assert not case.restored(0).has_ended


def test_a_large_progress_travels_in_a_slot_that_is_free_again_when_it_was_heard(case: Case) -> None:
    """Or when the new life is lost as well, or the loader is closed."""
    large = {"torch": bytes(100_000)}
    case.heard(0, 1, generators=large)
    for _ in range(3):
        assert case.restored(0).generators == large
        _, data, slot = case.told.messages[-1]
        assert data == b""
        assert slot is not None
        assert memory_in_use() <= 2 * 102_400  # one slot, not one for each life
    case.heard(0, 2)
    case.told.messages.clear()
    del slot
    case.pool.collect()
    assert memory_in_use() == 0


def test_closing_gives_back_what_is_on_its_way(case: Case) -> None:
    """The fixture looks for segments that are left."""
    case.heard(0, 1, generators={"torch": bytes(100_000)})
    case.restored(0)
    case.told.messages.clear()
    case.progress.close()
    case.progress.close()
