"""Which worker gets which unit, and which unit is delivered next. Pure: no process, no clock, no data.

The rules are torch's, because the random numbers a sample sees depend on the worker that loads it:
- unit k goes to the next active worker in turn; without order, to the next one that has room;
- units are delivered in the order in which they were assigned (without order: as they arrive);
- a worker whose iterable is exhausted gets no more units, and those it still had are void;
- ours: a worker that is paused, because memory is short, is passed over until it goes on.

Runs in: main process.
"""

from __future__ import annotations

from collections import deque
from enum import Enum


class Step(Enum):
    """What to do when there is no unit to deliver."""

    WAIT = "wait"
    END = "end"


class Schedule:
    """The state of one epoch. Units are numbered from `first_unit` on."""

    def __init__(self, num_workers: int, prefetch_factor: int, *, in_order: bool, first_unit: int = 0) -> None:
        self._num_workers = num_workers
        self._max_units = num_workers * prefetch_factor
        self._in_order = in_order
        self._turn = 0
        self._active = [True] * num_workers
        self._paused: set[int] = set()
        self._held = [0] * num_workers  # units assigned and not yet delivered
        self._worker_of: dict[int, int] = {}  # assigned, not yet delivered or void
        self._arrived: set[int] = set()
        self._arrivals: deque[int] = deque()  # without order: in the order of arrival
        self.next_unit = first_unit  # the number of the next unit to be assigned
        self.due_unit = first_unit  # the unit to be delivered next

    @property
    def capacity(self) -> int:
        """How many units may be under way at once."""
        return self._max_units

    def is_active(self, worker_id: int) -> bool:
        return self._active[worker_id]

    @property
    def under_way(self) -> int:
        """How many units have been assigned and not been delivered."""
        return len(self._worker_of)

    def expected(self) -> list[int]:
        """The units whose results are still to come, in order."""
        return [unit for unit in sorted(self._worker_of) if self.expects(unit) and self._active[self._worker_of[unit]]]

    def worker_of(self, unit: int) -> int:
        return self._worker_of[unit]

    def expects(self, unit: int) -> bool:
        """Whether a result for this unit is still wanted."""
        return unit in self._worker_of and unit not in self._arrived

    def assign(self) -> tuple[int, int] | None:
        """(unit, worker) for the next batch; None when no worker can take it."""
        worker_id = self._next_worker()
        if worker_id is None:
            return None
        unit = self.next_unit
        self.next_unit += 1
        self._worker_of[unit] = worker_id
        self._held[worker_id] += 1
        return unit, worker_id

    def _next_worker(self) -> int | None:
        for _ in range(self._num_workers):
            worker_id = self._turn
            self._turn = (self._turn + 1) % self._num_workers
            if self._takes_part(worker_id) and (self._in_order or self._has_room(worker_id)):
                return worker_id
        return None

    def _has_room(self, worker_id: int) -> bool:
        return self._held[worker_id] < self._max_units // sum(map(self._takes_part, range(self._num_workers)))

    def _takes_part(self, worker_id: int) -> bool:
        return self._active[worker_id] and worker_id not in self._paused

    def pause(self, worker_id: int) -> None:
        """The worker gets no more units for now. What it has is still expected."""
        self._paused.add(worker_id)

    def go_on(self, worker_id: int) -> None:
        """A worker that was paused gets units again."""
        self._paused.discard(worker_id)

    def next_turn(self) -> int | None:
        """The worker that would get the next unit."""
        for k in range(self._num_workers):
            worker_id = (self._turn + k) % self._num_workers
            if self._takes_part(worker_id):
                return worker_id
        return None

    def arrived(self, unit: int) -> None:
        """The unit is finished: a batch or an error is there."""
        self._arrived.add(unit)
        if not self._in_order:
            self._arrivals.append(unit)

    def ended(self, worker_id: int) -> None:
        """The worker's stream is exhausted: what it had been given beyond that is void."""
        self._active[worker_id] = False

    def next_step(self) -> int | Step:
        """The unit to deliver now, or what to do instead."""
        if self._arrivals:
            return self._arrivals[0]
        while self.due_unit < self.next_unit:
            worker_id = self._worker_of.get(self.due_unit)
            if worker_id is not None:
                if self.due_unit in self._arrived:
                    return self.due_unit
                if self._active[worker_id]:
                    return Step.WAIT
                del self._worker_of[self.due_unit]
            self.due_unit += 1
        return Step.END

    def delivered(self, unit: int) -> None:
        """The unit is given out. Harmless when said again."""
        worker_id = self._worker_of.pop(unit, None)
        if worker_id is not None:
            self._held[worker_id] -= 1
        self._arrived.discard(unit)
        if unit in self._arrivals:
            self._arrivals.remove(unit)  # nearly always the first
        if unit == self.due_unit:
            self.due_unit += 1
