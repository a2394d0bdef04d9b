"""The units of one iterator that are under way: what each asks for, and what came of it.

Nothing is decided here. Runs in: main process.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from holdfast.loader.interrupts import came_from_handler
from holdfast.transport.slots import SlotPool
from holdfast.workers.backend import WorkerBackend
from holdfast.workers.in_flight import InFlight, Sent
from holdfast.workers.messages import SlotRef, Unit, pack_request, place_of

_INLINE = 32 * 1024  # larger lists of indices travel in a slot
_PLACE_BYTES = 11  # of one place in a message, at most
ALL_OF_IT = -1
"""In place of a sample's place: where all samples of a unit are in hand at once."""


@dataclass(slots=True)
class UnitState(Sent):
    """A unit on its way: what it asks for, where it will be, and what came of it."""

    payload: bytes  # its indices, pickled once: the sampler may use its list again
    places: tuple[int, ...] = (0,)  # of its samples in the epoch: each, or, where they follow each other, the first
    is_list: bool = True  # of indices; False: the index of one sample, whatever that is
    one_by_one: bool = False
    alone: bool = False  # to be loaded while nothing else is: memory was short
    deaths: dict[int, int] = field(default_factory=dict)  # by place: workers that died loading the sample there
    batch_deaths: int = 0  # workers that died making a batch of them
    stops: dict[int, int] = field(default_factory=dict)  # by place, or ALL_OF_IT: workers that were stopped there
    sampled: tuple[Any, ...] = ()  # once samples were replaced: what the sampler gave
    given_up: list[Any] = field(default_factory=list)  # what it asked for in vain and had replaced
    is_substituted: bool = False  # its samples all stand for others, whose batch was bad
    is_void: bool = False  # none of its samples could be loaded: there is nothing to deliver
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


class Units(InFlight[UnitState]):
    """All units between being assigned and being delivered."""

    def __init__(self, pool: SlotPool, backend: WorkerBackend) -> None:
        super().__init__(pool)
        self._backend = backend

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
        self.release(state)
        state.result = None
        state.attempt += 1
        indices: bytes | SlotRef = state.payload
        places = state.places
        if len(state.payload) + _PLACE_BYTES * len(places) > _INLINE:
            stored = self.store(pack_request(state.payload, places))
            state.request = (stored,)
            indices, places = stored.ref, places[:1]
        slot = state.slot = self._pool.acquire()
        order = Unit(unit, state.attempt, slot.ref, indices, places, state.one_by_one)
        self._backend.submit(state.worker_id, order, (slot, *state.request))

    def reopen(self, unit: int) -> None:
        """Nothing can be delivered of what a worker has answered: the unit is to be sent again, when it may be."""
        state = self._states[unit]
        self.release(state)
        state.result = None

    def fail(self, unit: int, error: BaseException) -> None:
        """The unit will be delivered as an exception."""
        state = self._states[unit]
        self.release(state)
        state.result = None  # a worker may have answered that no batch could be made
        state.error = error

    def void(self, unit: int) -> None:
        """Nothing will be delivered in its place."""
        state = self._states[unit]
        self.release(state)
        state.is_void = True

    def give_up_finished(self) -> None:
        """Give up what nobody will ask for any more. Slots that a worker may still write to stay where they are."""
        for unit in self:
            if self._states[unit].slot is None:
                self.give_up(unit)


def dump_indices(indices: Any) -> bytes:
    """Pickle what the sampler gave."""
    try:
        return pickle.dumps(indices, protocol=5)
    except Exception as error:
        if came_from_handler(error):
            raise
        return bytes(cloudpickle.dumps(indices, protocol=5))
