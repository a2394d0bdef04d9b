"""The units that workers have been sent, and the slots they hold: of a loader its batches, of a pool its calls.

A unit holds one slot from the moment it is sent until it is delivered or given up; sent again, it gets a fresh one.
Nothing is decided here. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holdfast.transport.segments import Handle, discard
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.backend import UnitDone
from holdfast.workers.messages import Result


@dataclass(slots=True, kw_only=True)
class Sent:
    """The part of a unit that has to do with its worker and its slots."""

    worker_id: int = -1
    attempt: int = 0
    slot: Slot | None = None  # while a worker may write to it
    areas: list[Slot] = field(default_factory=list)  # once it is finished: where what came of it lies
    result: Result | None = None
    request: tuple[Slot, ...] = ()  # until it is finished: what did not fit into the message


State = TypeVar("State", bound=Sent)


class DescriptorsRanOut(Exception):
    """The kernel drops descriptors that do not fit into our table, without a word: this unit cannot be read."""


class InFlight(Generic[State]):
    """All units between being assigned and being delivered."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._states: dict[int, State] = {}

    def __getitem__(self, unit: int) -> State:
        return self._states[unit]

    def get(self, unit: int) -> State | None:
        return self._states.get(unit)

    def __contains__(self, unit: int) -> bool:
        return unit in self._states

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._states))

    def add(self, unit: int, state: State) -> None:
        self._states[unit] = state

    def sent_to(self, worker_id: int) -> list[int]:
        """What a worker has been sent and has not finished, in the order of sending."""
        return [u for u, s in sorted(self._states.items()) if s.worker_id == worker_id and s.slot is not None]

    def take(self, done: UnitDone) -> State | None:
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
        if state.request:
            self._release_request(state)
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

    def forget(self, unit: int) -> None:
        """The unit is the caller's now, slots and all."""
        self._states.pop(unit, None)

    def give_up(self, unit: int) -> None:
        self.release(self._states.pop(unit))

    def release(self, state: State) -> None:
        """Let go of all slots of a unit that no worker writes to any more."""
        self._release_request(state)
        if state.slot is not None:
            state.slot.touched = state.slot.nbytes  # nobody knows how far its worker came
            self._pool.release(state.slot)
            state.slot = None
        for slot in state.areas:
            self._pool.release(slot)
        state.areas = []

    def store(self, payload: bytes) -> Slot:
        """Put what is too large for a message into a slot."""
        slot = self._pool.acquire(len(payload))
        slot.peek(0, len(payload))[:] = payload
        slot.touched = max(slot.touched, len(payload))
        return slot

    def _release_request(self, state: State) -> None:
        for slot in state.request:
            self._pool.release(slot)
        state.request = ()
