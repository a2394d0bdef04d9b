"""The units under way and their slots: a fresh slot for every attempt, and none that anyone may still read or write."""

from __future__ import annotations

import os
import pickle
from typing import Any, cast

import pytest

from holdfast.loader.units import Units, UnitState
from holdfast.transport.segments import PAGE, Segment
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import UnitDone, WorkerBackend
from holdfast.workers.channel import MAX_MESSAGE
from holdfast.workers.in_flight import DescriptorsRanOut
from holdfast.workers.messages import Kind, Result, Unit, pack_unit, unpack_request

from .readings import count_from_here, descriptors, memory_in_use

MB = 1 << 20


class Sent:
    """Stands for a backend: notes what it is told to send."""

    def __init__(self) -> None:
        self.orders: list[tuple[int, Unit, tuple[Slot, ...]]] = []

    def submit(self, *order: Any) -> None:
        self.orders.append(cast(Any, order))


def started() -> tuple[Units, Sent, SlotPool]:
    count_from_here()
    pool, sent = SlotPool(warm_slots=4), Sent()
    return Units(pool, cast(WorkerBackend, sent)), sent, pool


def header(unit: int, *, attempt: int = 1, kept: bool = False, used: int = 0, spilled: tuple[int, ...] = ()) -> Result:
    return Result(int(Kind.BATCH), unit, attempt, kept, (used, *(PAGE for _ in spilled)), spilled, b"")


def spill(nbytes: int) -> int:
    """A descriptor as it comes with a header."""
    segment = Segment.create(nbytes)
    fd = os.dup(segment.fd)
    segment.close_fd()
    return fd


def test_a_unit_is_sent_with_its_indices_and_a_slot() -> None:
    """To its worker, as its first attempt."""
    units, sent, pool = started()
    units.add(5, UnitState(pickle.dumps([1, 2]), worker_id=2))
    units.send(5)
    (worker_id, unit, slots) = sent.orders[0]
    assert worker_id == 2
    assert unit == Unit(5, 1, slots[0].ref, pickle.dumps([1, 2]), (0,), False)
    assert units.sent_to(2) == [5]
    assert slots == (units[5].slot,)
    pool.close()


def test_indices_that_are_too_large_for_a_message_travel_in_a_slot() -> None:
    """Their slot is free again when the result is there."""
    units, sent, pool = started()
    payload = pickle.dumps(list(range(65_536)))
    units.add(0, UnitState(payload, worker_id=0))
    units.send(0)
    place = sent.orders[0][2][1]
    assert sent.orders[0][1].indices == place.ref
    assert unpack_request(place.peek(0, place.touched)) == (payload, (0,))
    units.take(UnitDone(0, header(0), []))
    assert pool.acquire() is place
    pool.close()


def test_places_that_are_too_many_for_a_message_travel_with_the_indices() -> None:
    """Of a batch that has lost a sample each has its own. The first stays in the message."""
    units, sent, pool = started()
    payload, places = pickle.dumps(b"few"), tuple(range(3, 10_000))
    units.add(0, UnitState(payload, places, worker_id=0))
    units.send(0)
    order, slots = sent.orders[0][1:]
    assert len(pack_unit(order)) < MAX_MESSAGE
    assert (order.indices, order.places) == (slots[1].ref, (3,))
    assert unpack_request(slots[1].peek(0, slots[1].touched)) == (payload, places)
    pool.close()


def test_a_unit_that_is_sent_again_has_another_slot_in_hand_than_anyone_else() -> None:
    """Its old one is free: who sends again knows that the old worker is gone."""
    units, sent, pool = started()
    for unit in (0, 1):
        units.add(unit, UnitState(b"", worker_id=0))
        units.send(unit)
    units.send(0)
    assert units.sent_to(0) == [0, 1]
    assert units[0].slot is not units[1].slot
    assert len(sent.orders) == 3
    pool.close()


def test_a_result_is_booked_with_its_areas() -> None:
    """The slot it was granted, then what was spilled; as much of each as was used may hold memory."""
    units, _, pool = started()
    units.add(0, UnitState(b"", worker_id=0))
    units.send(0)
    slot = units[0].slot
    state = units.take(UnitDone(0, header(0, used=300, spilled=(MB,)), [spill(MB)]))
    assert state is units[0]
    assert state.slot is None
    assert [area.touched for area in state.areas] == [300, PAGE]
    assert state.areas[0] is slot
    assert units.sent_to(0) == []
    pool.close()


@pytest.mark.parametrize("why", ["unknown unit", "old attempt", "second answer"])
def test_a_result_that_nobody_wants_is_dropped_with_what_it_spilled(why: str) -> None:
    """No slot, no descriptor and no memory is left of it."""
    units, _, pool = started()
    units.add(0, UnitState(b"", worker_id=0))
    units.send(0)
    if why == "second answer":
        units.take(UnitDone(0, header(0), []))
    before = descriptors()
    unit, attempt = {"unknown unit": (9, 1), "old attempt": (0, 0), "second answer": (0, 1)}[why]
    assert units.take(UnitDone(0, header(unit, attempt=attempt, spilled=(MB // 4,)), [spill(MB // 4)])) is None
    assert descriptors() == before
    pool.close()


def test_descriptors_that_did_not_arrive_are_an_error() -> None:
    """The kernel drops them without a word: those that came are closed."""
    units, _, pool = started()
    units.add(0, UnitState(b"", worker_id=0))
    units.send(0)
    before = descriptors()
    with pytest.raises(DescriptorsRanOut):
        units.take(UnitDone(0, header(0, spilled=(MB, MB)), [spill(MB)]))
    assert descriptors() == before
    pool.close()


@pytest.mark.parametrize("unit", [9, 0])
def test_descriptors_that_did_not_arrive_of_a_result_that_nobody_wants_are_no_error(unit: int) -> None:
    """Of a unit that was given up, or sent again: that one may still come out well."""
    units, _, pool = started()
    units.add(0, UnitState(b"", worker_id=0))
    units.send(0)
    assert units.take(UnitDone(0, header(unit, attempt=0, spilled=(MB,)), [])) is None
    assert units.sent_to(0) == [0]
    pool.close()


def test_a_unit_that_is_given_up_gives_its_slots_back() -> None:
    """Granted, spilled, and that of its indices."""
    units, _, pool = started()
    units.add(0, UnitState(b"x" * 100_000, worker_id=0))
    units.send(0)
    units.take(UnitDone(0, header(0, spilled=(MB,)), [spill(MB)]))
    units.give_up(0)
    assert 0 not in units
    pool.close()
    assert memory_in_use() == 0


def test_finished_units_are_given_up_and_others_stay() -> None:
    """Between two epochs: a slot that a worker may still write to is not touched."""
    units, _, pool = started()
    for unit in (0, 1):
        units.add(unit, UnitState(b"", worker_id=0))
        units.send(unit)
    units.take(UnitDone(0, header(0), []))
    under_way = units[1].slot
    units.give_up_finished()
    assert list(units) == [1]
    assert under_way not in [pool.acquire() for _ in range(10)]
    pool.close()


def test_a_slot_that_the_workers_code_keeps_is_not_used_again_though_its_batch_is_given_up() -> None:
    """A collate function with a cache, and a user who never asked for that batch (a new epoch with the same workers):
    the next batch in that slot would be written over what the cache holds."""
    units, _, pool = started()
    units.add(0, UnitState(b"", worker_id=0))
    units.send(0)
    slot = units[0].slot
    units.take(UnitDone(0, header(0, kept=True), []))
    units.give_up_finished()
    assert slot not in [pool.acquire() for _ in range(10)]
    pool.close()


def test_an_error_takes_the_place_of_a_result() -> None:
    """Its slots are free, its place in the order is kept."""
    units, _, pool = started()
    units.add(0, UnitState(b"", worker_id=0))
    units.send(0)
    slot = units[0].slot
    error = ValueError("x")
    units.fail(0, error)
    assert units[0].error is error
    assert units.sent_to(0) == []
    assert pool.acquire() is slot
    pool.close()
