"""The units of one iterator that are under way, and the slots they hold.

A unit holds one slot from the moment it is sent until it is delivered or given up; sent again, it gets a fresh one.
Nothing is decided here. Runs in: main process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from holdfast.transport.segments import Handle, discard
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import UnitDone, WorkerBackend
from holdfast.workers.messages import Result, SlotRef, Unit, pack_request, place_of

_INLINE = 32 * 1024  # larger lists of indices travel in a slot
_PLACE_BYTES = 11  # of one place in a message, at most


@dataclass(slots=True)
class UnitState:
    """A unit on its way: what it asks for, where it will be, and what came of it."""

    payload: bytes  # its indices, pickled once: the sampler may use its list again
    worker_id: int = -1
    places: tuple[int, ...] = (0,)  # of its samples in the epoch: each, or, where they follow each other, the first
    is_list: bool = True  # of indices; False: the index of one sample, whatever that is
    attempt: int = 0
    one_by_one: bool = False
    alone: bool = False  # to be loaded while nothing else is: memory was short
    deaths: dict[int, int] = field(default_factory=dict)  # by place: workers that died loading the sample there
    batch_deaths: int = 0  # workers that died making a batch of them
    sampled: tuple[Any, ...] = ()  # once samples were replaced: what the sampler gave
    given_up: list[Any] = field(default_factory=list)  # what it asked for in vain and had replaced
    is_substituted: bool = False  # its samples all stand for others, whose batch was bad
    is_void: bool = False  # none of its samples could be loaded: there is nothing to deliver
    slot: Slot | None = None  # while a worker may write to it
    indices_slot: Slot | None = None
    areas: list[Slot] = field(default_factory=list)  # once it is finished: where the batch lies
    result: Result | None = None
    error: BaseException | None = None
    samples: int = 0  # how many it asks for; once it is finished, how many came

    @property
    def is_finished(self) -> bool:
        return self.result is not None or self.error is not None or self.is_void

    @property
    def indices(self) -> Any:
        return pickle.loads(self.payload)

    @property
    def listed(self) -> list[Any]:
        """The index of each sample."""
        return load_listed(self.payload, is_list=self.is_list)

    def place(self, position: int) -> int:
        return place_of(self.places, position)

    def change(self, listed: list[Any], places: list[int]) -> None:
        """Ask for other samples than the sampler gave."""
        self.payload, self.places = dump_indices(listed if self.is_list else listed[0]), tuple(places)
        self.samples = len(listed)


def load_listed(payload: bytes, *, is_list: bool) -> list[Any]:
    indices = pickle.loads(payload)
    return list(indices) if is_list else [indices]


class DescriptorsRanOut(Exception):
    """The kernel drops descriptors that do not fit into our table, without a word: this batch cannot be read."""


class Units:
    """All units between being assigned and being delivered."""

    def __init__(self, pool: SlotPool, backend: WorkerBackend) -> None:
        self._pool = pool
        self._backend = backend
        self._states: dict[int, UnitState] = {}

    def __getitem__(self, unit: int) -> UnitState:
        return self._states[unit]

    def __contains__(self, unit: int) -> bool:
        return unit in self._states

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._states))

    def add(self, unit: int, state: UnitState) -> None:
        self._states[unit] = state

    def sent_to(self, worker_id: int) -> list[int]:
        """What a worker has been sent and has not finished, in the order of sending."""
        return [u for u, s in sorted(self._states.items()) if s.worker_id == worker_id and s.slot is not None]

    def loading(self) -> list[int]:
        """What workers have been sent and have not finished."""
        return [unit for unit, state in self._states.items() if state.slot is not None]

    def memory_bytes(self) -> tuple[int, int]:
        """Of the slots of finished units, and of those that workers fill."""
        finished = sum(slot.touched for state in self._states.values() for slot in state.areas)
        return finished, sum(state.slot.touched for state in self._states.values() if state.slot is not None)

    def send(self, unit: int) -> None:
        """Send a unit to its worker, once more if need be, with a fresh slot."""
        state = self._states[unit]
        self._release(state)
        state.result = None
        state.attempt += 1
        indices: bytes | SlotRef = state.payload
        places = state.places
        if len(state.payload) + _PLACE_BYTES * len(places) > _INLINE:
            state.indices_slot = self.store(pack_request(state.payload, places))
            indices, places = state.indices_slot.ref, places[:1]
        slot = state.slot = self._pool.acquire()
        order = Unit(unit, state.attempt, slot.ref, indices, places, state.one_by_one)
        slots = (slot,) if state.indices_slot is None else (slot, state.indices_slot)
        self._backend.submit(state.worker_id, order, slots)

    def take(self, done: UnitDone) -> UnitState | None:
        """Book a result. None if it is of a unit, or an attempt, that was given up."""
        result = done.result
        state = self._states.get(result.unit)
        is_stale = state is None or state.slot is None or state.attempt != result.attempt
        if is_stale or len(done.handles) != len(result.spilled):
            for handle in done.handles:
                discard(handle)
            if is_stale:
                return None
            raise DescriptorsRanOut
        assert state is not None
        assert state.slot is not None
        adopted = self._adopt(done.handles, result.spilled)
        state.result = result
        state.areas, state.slot = [state.slot, *adopted], None
        for slot, used in zip(state.areas, result.used, strict=True):
            slot.touched = max(slot.touched, used)
            slot.is_retired = result.kept  # the worker's own code holds a tensor in it: never used again
        if state.indices_slot is not None:
            self._release_indices(state)
        return state

    def _adopt(self, handles: Sequence[Handle], sizes: tuple[int, ...]) -> list[Slot]:
        adopted: list[Slot] = []
        try:
            for handle, nbytes in zip(handles, sizes, strict=True):
                adopted.append(self._pool.adopt(handle, nbytes))
        except OSError as error:
            for slot in adopted:
                self._pool.release(slot)
            for handle in handles[len(adopted) :]:
                discard(handle)
            raise DescriptorsRanOut from error
        return adopted

    def reopen(self, unit: int) -> None:
        """Nothing can be delivered of what a worker has answered: the unit is to be sent again, when it may be."""
        state = self._states[unit]
        self._release(state)
        state.result = None

    def fail(self, unit: int, error: BaseException) -> None:
        """The unit will be delivered as an exception."""
        state = self._states[unit]
        self._release(state)
        state.result = None  # a worker may have answered that no batch could be made
        state.error = error

    def void(self, unit: int) -> None:
        """Nothing will be delivered in its place."""
        state = self._states[unit]
        self._release(state)
        state.is_void = True

    def forget(self, unit: int) -> None:
        """The unit is the caller's now, slots and all."""
        self._states.pop(unit, None)

    def give_up(self, unit: int) -> None:
        self._release(self._states.pop(unit))

    def give_up_finished(self) -> None:
        """Give up what nobody will ask for any more. Slots that a worker may still write to stay where they are."""
        for unit in self:
            if self._states[unit].slot is None:
                self.give_up(unit)

    def store(self, payload: bytes) -> Slot:
        """Put what is too large for a message into a slot."""
        slot = self._pool.acquire(len(payload))
        slot.peek(0, len(payload))[:] = payload
        slot.touched = max(slot.touched, len(payload))
        return slot

    def _release(self, state: UnitState) -> None:
        self._release_indices(state)
        if state.slot is not None:
            state.slot.touched = state.slot.nbytes  # nobody knows how far its worker came
            self._pool.release(state.slot)
            state.slot = None
        for slot in state.areas:
            self._pool.release(slot)
        state.areas = []

    def _release_indices(self, state: UnitState) -> None:
        if state.indices_slot is not None:
            self._pool.release(state.indices_slot)
            state.indices_slot = None


def dump_indices(indices: Any) -> bytes:
    """Pickle what the sampler gave."""
    try:
        return pickle.dumps(indices, protocol=5)
    except Exception:
        return bytes(cloudpickle.dumps(indices, protocol=5))
