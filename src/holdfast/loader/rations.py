"""Where memory is short: fewer units at once, then fewer workers, and a unit that needs it all is loaded alone.

    a unit is delivered ──► is there memory for more? ──► as many as there is memory for
                                     │ no, not even for one
                                     ▼
                            a worker is let go; it comes back when there is room

`allowance.py` decides, this puts it into effect. As long as nobody set a budget and no worker was killed for want of
memory, nothing is held back. Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.loader.allowance import Allowance
from holdfast.loader.held import Held
from holdfast.loader.schedule import Schedule
from holdfast.loader.units import Units, UnitState
from holdfast.workers.backend import WorkerBackend


class Orders(Protocol):
    """What the workers are told: the iterator's part."""

    def order_next(self) -> None:
        """Send the next unit, if there is one and a worker whose turn it is."""

    def order(self, unit: int) -> None:
        """Send this one now."""

    def carry_on(self, worker_id: int) -> None:
        """A worker that was let go is back: it takes up what it had not finished."""


class Rations:
    """For one iterator."""

    def __init__(self, allowance: Allowance, units: Units, backend: WorkerBackend, orders: Orders) -> None:
        self._allowance = allowance
        self._units = units
        self._backend = backend
        self._orders = orders
        self._schedule: Schedule
        self._held = Held()
        self._absent: set[int] = set()  # workers that were let go, to be started again when there is memory
        self._retiring: set[int] = set()  # those of them that are not gone yet
        self.is_bound = not allowance.is_unbound  # to look at memory before anything is sent

    def begin_epoch(self, schedule: Schedule) -> None:
        """Workers that were let go stay so."""
        self._schedule = schedule
        for worker_id in self._allowance.retired:
            schedule.pause(worker_id)

    @property
    def is_letting_go(self) -> bool:
        """Whether a worker is about to end, and something is to be done when it has."""
        return bool(self._retiring)

    # -- what is learned -------------------------------------------------------------------------------------------

    def saw_unit(self, worker_id: int, batch_bytes: int) -> None:
        self._allowance.saw_unit(worker_id, batch_bytes)

    def saw_kill(self) -> str:
        """A worker was killed for want of memory: fewer units at once from now on. Returns what they took, in words."""
        self._allowance.saw_kill()
        self.is_bound = True
        return self._allowance.needs()

    def saw_end(self, worker_id: int, *, replaced: bool) -> bool:
        """A worker has ended. Whether that is all: it was let go.

        It may have died before it was told to go, and been replaced: then that one is let go.
        """
        was_let_go = worker_id in self._retiring
        if was_let_go and replaced:
            self._backend.retire(worker_id)
        else:
            self._retiring.discard(worker_id)
        return was_let_go

    def has_left(self, worker_id: int) -> None:
        """It has nothing more to do."""
        self._allowance.has_left(worker_id)

    # -- as much as there is memory for ----------------------------------------------------------------------------

    def fill(self, due: UnitState | None) -> None:
        """Order as many units as there is memory for; one in any case, if there is nothing to give or to wait for.

        `due`: the one on its way to the user, whose memory is in use.
        """
        schedule, due_bytes = self._schedule, sum(slot.touched for slot in due.areas) if due is not None else 0
        is_woken = False
        while schedule.under_way < schedule.capacity and not self._held.is_busy and not self._retiring:
            self._take_one_back(due_bytes)
            if not self._allowance.allows_one_more(due_bytes, schedule.next_turn()):
                if schedule.under_way or due is not None:
                    break
                if not is_woken and self._retire_one(due_bytes):  # who was woken for want of others gets its unit
                    continue
            before = schedule.next_unit
            self._orders.order_next()
            is_woken = schedule.next_unit == before and self._wake_a_stream()
            if schedule.next_unit == before and not is_woken:
                break
        self.is_bound = not self._allowance.is_unbound

    def _retire_one(self, due_bytes: int) -> bool:
        """Do without a worker, because of what it keeps. Its part comes later, or to others."""
        turn = self._schedule.next_turn()
        worker_id = self._allowance.retire_one(due_bytes, turn, self._schedule.is_active) if turn is not None else None
        if worker_id is not None:
            self._retire(worker_id)
        return worker_id is not None

    def _retire(self, worker_id: int) -> None:
        """One that keeps nothing yet needs only to get no work."""
        self._schedule.pause(worker_id)
        if self._allowance.has_begun(worker_id):
            self._absent.add(worker_id)
            self._retiring.add(worker_id)
            self._backend.retire(worker_id)

    def _take_one_back(self, due_bytes: int) -> None:
        if not self._allowance.retired:
            return
        worker_id = self._allowance.takes_one_back(due_bytes, self._schedule.is_active)
        if worker_id is not None:
            self._take_back(worker_id)

    def _take_back(self, worker_id: int) -> None:
        self._allowance.took_back(worker_id)
        self._schedule.go_on(worker_id)
        if worker_id in self._absent:
            self._absent.discard(worker_id)
            self._backend.bring_back(worker_id)
            self._orders.carry_on(worker_id)

    def _wake_a_stream(self) -> bool:
        """All that take part have come to their end: whether one that was let go has more to give."""
        streams = [worker_id for worker_id in self._allowance.retired if self._schedule.is_active(worker_id)]
        if not streams or self._schedule.next_turn() is not None:
            return False
        self._take_back(streams[0])
        return True

    def take_all_back(self) -> None:
        """All workers start anew. What each is to do, they are told by whoever started them."""
        for worker_id in list(self._allowance.retired):
            self._allowance.took_back(worker_id)
            self._schedule.go_on(worker_id)
        for worker_id in self._absent:
            self._backend.bring_back(worker_id)
        self._absent.clear()
        self._retiring.clear()

    # -- alone -----------------------------------------------------------------------------------------------------

    def holds_back(self, unit: int) -> bool:
        """A unit is to be sent. False: now."""
        return self._held.holds_back(unit, alone=self._units[unit].alone)

    def order_held(self) -> None:
        """Order what has waited, as far as it may be now. Beside what is loaded alone nobody keeps any memory."""
        if not self._held.is_busy:
            return
        while not self._retiring and (unit := self._held.next_unit(self._units.loading())) is not None:
            if unit not in self._units or self._units[unit].is_finished:
                continue
            state = self._units[unit]
            if state.worker_id in self._absent:  # it was let go for another unit's sake
                self._held.put_back(unit)
                self._take_back(state.worker_id)
                continue
            others = self._allowance.retire_all_but(state.worker_id) if state.alone else []
            for worker_id in others:
                self._retire(worker_id)
            if others:
                self._held.put_back(unit)
            else:
                self._orders.order(unit)

    def order_all(self) -> None:
        """Order all that wait: the epoch they are of was left, and workers do what they were given."""
        for unit in [unit for unit in self._held.let_go() if unit in self._units]:
            self._orders.order(unit)
