"""The schedule does what torch's iterator does: torch's own code is the oracle, with no process around it."""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch.utils.data import _utils
from torch.utils.data import dataloader as torch_loader

from holdfast.loader.schedule import Schedule, Step

Message = tuple[int, int, bool]
"""Worker, unit, and whether it says that the worker's iterable has ended."""

WAIT, END = "would wait", "end"


class NothingThere(Exception):
    """`next()` would have to wait for a worker."""


class IndexQueue:
    """Stands where torch has the queue to one worker: notes what is put in."""

    def __init__(self, worker_id: int, log: list[tuple[int, int, int]]) -> None:
        self.worker_id = worker_id
        self.log = log

    def put(self, task: tuple[int, int] | None) -> None:
        if task is not None:
            unit, index = task
            self.log.append((unit, index, self.worker_id))


class TorchIterator(torch_loader._MultiProcessingDataLoaderIter):
    """torch's scheduling as torch wrote it; messages come from a list, indices from a counter."""

    def __init__(self, num_workers: int, prefetch_factor: int, *, in_order: bool, indices: Iterator[int]) -> None:
        self._num_workers = num_workers
        self._prefetch_factor = prefetch_factor
        self._in_order = in_order
        self._dataset_kind = torch_loader._DatasetKind.Iterable  # of map-style datasets no worker ever ends
        self._persistent_workers = False
        self._shutdown = False
        self._workers_done_event = threading.Event()
        self._task_info: dict[int, Any] = {}
        self._tasks_outstanding = 0
        self._send_idx = 0
        self._rcvd_idx = 0
        self._worker_queue_idx_cycle = itertools.cycle(range(num_workers))
        self._workers_status = [True] * num_workers
        self._workers_num_tasks = [0] * num_workers
        self._indices = indices
        self.assigned: list[tuple[int, int, int]] = []
        self._index_queues = [IndexQueue(worker_id, self.assigned) for worker_id in range(num_workers)]
        self.messages: deque[Message] = deque()
        for _ in range(prefetch_factor * num_workers):
            self._try_put_index()

    def _next_index(self) -> int:
        return next(self._indices)

    def _get_data(self) -> tuple[int, Any]:
        if not self.messages:
            raise NothingThere
        worker_id, unit, ended = self.messages.popleft()
        return unit, _utils.worker._IterableDatasetStopIteration(worker_id) if ended else unit

    def _shutdown_workers(self) -> None:
        """There are none."""

    def step(self) -> int | str:
        try:
            return int(self._next_data())
        except NothingThere:
            return WAIT
        except StopIteration:
            return END


class OurIterator:
    """The calls that the loader's iterator makes, in its order. `at_once`: all messages that are there are taken in."""

    def __init__(self, schedule: Schedule, indices: Iterator[int], *, at_once: bool = False) -> None:
        self.schedule = schedule
        self.at_once = at_once
        self.assigned: list[tuple[int, int, int]] = []
        self.messages: deque[Message] = deque()
        self._indices = indices
        for _ in range(schedule.capacity):
            self._assign_next()

    def _assign_next(self) -> None:
        index = next(self._indices, None)
        if index is None:
            return
        assigned = self.schedule.assign()
        if assigned is not None:
            unit, worker_id = assigned
            self.assigned.append((unit, index, worker_id))

    def _take_in(self, message: Message) -> None:
        worker_id, unit, ended = message
        if ended:
            self.schedule.ended(worker_id)
            self._assign_next()
        else:
            assert self.schedule.expects(unit)
            self.schedule.arrived(unit)
            assert not self.schedule.expects(unit)

    def step(self) -> int | str:
        while True:
            step = self.schedule.next_step()
            if step is Step.END:
                return END
            if step is not Step.WAIT:
                assert isinstance(step, int)
                self.schedule.delivered(step)
                self._assign_next()
                return step
            if not self.messages:
                return WAIT
            self._take_in(self.messages.popleft())
            while self.at_once and self.messages:
                self._take_in(self.messages.popleft())


def indices_of(length: int | None) -> Iterator[int]:
    return itertools.count() if length is None else iter(range(length))


class SameAsTorch(RuleBasedStateMachine):
    """Both sides are given the same messages at the same moments, and must do the same."""

    @initialize(
        num_workers=st.integers(1, 4),
        prefetch_factor=st.integers(1, 3),
        in_order=st.booleans(),
        length=st.none() | st.integers(0, 25),
        first_unit=st.sampled_from([0, 7]),
    )
    def start(
        self, num_workers: int, prefetch_factor: int, in_order: bool, length: int | None, first_unit: int
    ) -> None:
        self.is_iterable = length is None
        self.first_unit = first_unit
        self.theirs = TorchIterator(num_workers, prefetch_factor, in_order=in_order, indices=indices_of(length))
        schedule = Schedule(num_workers, prefetch_factor, in_order=in_order, first_unit=first_unit)
        self.ours = OurIterator(schedule, indices_of(length))
        self.in_order = in_order
        self.answered: set[int] = set()
        self.ended: set[int] = set()
        self.finished: list[int] = []
        self.delivered: list[int] = []
        self.is_over = False

    @property
    def open_units(self) -> list[tuple[int, int]]:
        """The unit each worker works on: the first it was given and has not answered. One that ended answers none."""
        oldest: dict[int, int] = {}
        for unit, _, worker_id in self.theirs.assigned:
            if unit not in self.answered and worker_id not in self.ended:
                oldest.setdefault(worker_id, unit)
        return sorted(oldest.items())

    @precondition(lambda self: self.open_units)
    @rule(data=st.data())
    def a_worker_finishes_a_unit(self, data: st.DataObject) -> None:
        self._finish(*data.draw(st.sampled_from(self.open_units)))

    @precondition(lambda self: self.is_iterable and self.open_units)
    @rule(data=st.data())
    def a_worker_ends(self, data: st.DataObject) -> None:
        self._end(*data.draw(st.sampled_from(self.open_units)))

    def _finish(self, worker_id: int, unit: int) -> None:
        self._send(worker_id, unit, ended=False)
        self.finished.append(unit)

    def _end(self, worker_id: int, unit: int) -> None:
        self._send(worker_id, unit, ended=True)
        self.ended.add(worker_id)

    def _send(self, worker_id: int, unit: int, *, ended: bool) -> None:
        self.answered.add(unit)
        self.theirs.messages.append((worker_id, unit, ended))
        self.ours.messages.append((worker_id, unit + self.first_unit, ended))

    @rule()
    def the_user_asks_for_a_batch(self) -> None:
        self._ask()

    def _ask(self) -> int | str:
        expected = self.theirs.step()
        got = self.ours.step()
        if isinstance(got, int):
            got -= self.first_unit
            self.delivered.append(got)
        assert got == expected
        assert got == END or not self.is_over
        self.is_over = got == END
        return got

    @invariant()
    def the_same_units_went_to_the_same_workers(self) -> None:
        ours = [(unit - self.first_unit, index, worker_id) for unit, index, worker_id in self.ours.assigned]
        assert ours == self.theirs.assigned

    @invariant()
    def what_was_delivered_had_been_finished_and_comes_once(self) -> None:
        assert len(set(self.delivered)) == len(self.delivered)
        assert set(self.delivered) <= set(self.finished)
        if self.in_order:
            assert self.delivered == sorted(self.delivered)
        else:
            assert self.delivered == self.finished[: len(self.delivered)]

    def teardown(self) -> None:
        """From any state the epoch can be brought to its end, and then everything finished has been delivered."""
        if not hasattr(self, "ours"):
            return
        while self._ask() != END:
            self.the_same_units_went_to_the_same_workers()
            for worker_id, unit in self.open_units:
                if self.is_iterable:
                    self._end(worker_id, unit)
                else:
                    self._finish(worker_id, unit)
        assert sorted(self.delivered) == sorted(self.finished)
        assert self.ours.step() == END


def test_units_are_given_out_and_delivered_as_torch_does() -> None:
    """Same worker for each unit, same order, same waits, same end, whenever workers answer or end."""
    run_state_machine_as_test(SameAsTorch, settings=settings(max_examples=150, stateful_step_count=40))


def run_to_the_end(iterator: TorchIterator | OurIterator, lengths: list[int], chance: random.Random) -> list[Any]:
    """Play workers with that many batches each, in random order, until the end. Gives (worker, number of its batch)."""
    answered: dict[int, tuple[int, int]] = {}
    made = [0] * len(lengths)
    ended: set[int] = set()
    delivered: list[tuple[int, int]] = []
    while (step := iterator.step()) != END:
        if step != WAIT:
            delivered.append(answered[step])  # type: ignore[index]
            continue
        for _ in range(chance.randint(1, 4)):
            ready: dict[int, int] = {}
            for unit, _, worker_id in iterator.assigned:
                if unit not in answered and worker_id not in ended:
                    ready.setdefault(worker_id, unit)
            if not ready:
                break
            worker_id = chance.choice(sorted(ready))
            unit = ready[worker_id]
            answered[unit] = (worker_id, made[worker_id])
            if made[worker_id] == lengths[worker_id]:
                ended.add(worker_id)
            made[worker_id] += worker_id not in ended
            iterator.messages.append((worker_id, unit, worker_id in ended))
    return delivered


def round_robin(lengths: list[int]) -> list[tuple[int, int]]:
    rounds = range(max(lengths, default=0))
    return [(worker_id, k) for k in rounds for worker_id, length in enumerate(lengths) if k < length]


@given(
    lengths=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    prefetch_factor=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    at_once=st.booleans(),
)
def test_the_order_of_an_iterable_dataset_does_not_depend_on_timing(
    lengths: list[int], prefetch_factor: int, seed: int, at_once: bool
) -> None:
    """Whenever messages come, one by one or many at once, workers take turns until each has ended, as with torch."""
    schedule = Schedule(len(lengths), prefetch_factor, in_order=True)
    ours = OurIterator(schedule, indices_of(None), at_once=at_once)
    theirs = TorchIterator(len(lengths), prefetch_factor, in_order=True, indices=indices_of(None))
    assert run_to_the_end(theirs, lengths, random.Random(seed + 1)) == round_robin(lengths)
    assert run_to_the_end(ours, lengths, random.Random(seed)) == round_robin(lengths)


@given(
    lengths=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    prefetch_factor=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    at_once=st.booleans(),
)
def test_without_order_every_batch_of_an_iterable_comes_once(
    lengths: list[int], prefetch_factor: int, seed: int, at_once: bool
) -> None:
    """With in_order=False nothing is lost or doubled, and each worker's own batches keep their order."""
    schedule = Schedule(len(lengths), prefetch_factor, in_order=False)
    delivered = run_to_the_end(OurIterator(schedule, indices_of(None), at_once=at_once), lengths, random.Random(seed))
    assert sorted(delivered) == sorted(round_robin(lengths))
    for worker_id, length in enumerate(lengths):
        assert [k for w, k in delivered if w == worker_id] == list(range(length))


@pytest.mark.parametrize("in_order", [True, False])
def test_units_go_to_the_workers_in_turn(in_order: bool) -> None:
    """Unit k goes to worker k mod n: the random numbers that a sample sees depend on it."""
    schedule = Schedule(3, 2, in_order=in_order)
    assert [schedule.assign() for _ in range(schedule.capacity)] == [(k, k % 3) for k in range(6)]


def test_without_order_a_worker_with_its_hands_full_is_passed_over() -> None:
    """in_order=False: the next unit goes to whoever has room, not to a slow worker whose turn it is."""
    schedule = Schedule(2, 1, in_order=False)
    assert [schedule.assign(), schedule.assign()] == [(0, 0), (1, 1)]
    assert schedule.assign() is None
    schedule.arrived(1)
    assert schedule.next_step() == 1
    schedule.delivered(1)
    assert schedule.assign() == (2, 1)


def test_an_epoch_without_units_ends_at_once() -> None:
    """An empty sampler: nothing to wait for."""
    assert Schedule(2, 2, in_order=True).next_step() is Step.END


def test_a_unit_that_was_delivered_or_never_assigned_is_not_expected() -> None:
    """A late second answer to a unit, or one of an epoch long gone, is not wanted."""
    schedule = Schedule(1, 2, in_order=True, first_unit=5)
    assert schedule.assign() == (5, 0)
    assert [schedule.expects(unit) for unit in (4, 5, 6)] == [False, True, False]
    schedule.arrived(5)
    schedule.delivered(5)
    assert not schedule.expects(5)


# --- paused workers -------------------------------------------------------------------------------------------------


def test_a_paused_worker_is_passed_over_until_it_goes_on() -> None:
    """The others take its turns; its own goes on with the next unit."""
    schedule = Schedule(3, 4, in_order=True)
    schedule.pause(1)
    assert [schedule.assign() for _ in range(4)] == [(0, 0), (1, 2), (2, 0), (3, 2)]
    assert schedule.next_turn() == 0
    schedule.go_on(1)
    assert [schedule.assign() for _ in range(3)] == [(4, 0), (5, 1), (6, 2)]


def test_what_a_paused_worker_has_is_still_expected() -> None:
    schedule = Schedule(2, 2, in_order=True)
    schedule.assign()
    schedule.pause(0)
    assert schedule.expects(0)
    assert schedule.next_step() is Step.WAIT


def test_when_all_that_take_part_have_ended_it_is_nobodys_turn() -> None:
    """A paused one has not ended: it can be asked to go on."""
    schedule = Schedule(2, 2, in_order=True)
    schedule.pause(0)
    schedule.ended(1)
    assert schedule.next_turn() is None
    assert schedule.assign() is None
    assert schedule.is_active(0)
    schedule.go_on(0)
    assert schedule.assign() == (0, 0)


def test_without_order_the_room_of_a_paused_worker_is_the_others() -> None:
    schedule = Schedule(2, 2, in_order=False)
    schedule.pause(1)
    assert [schedule.assign() for _ in range(4)] == [(k, 0) for k in range(4)]
    assert schedule.assign() is None
