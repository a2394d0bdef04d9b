"""How much may be under way within a memory budget. Pure: no process, no clock, no reading of its own.

    units seen ──► what a unit takes ┐
    what is in use now (Use) ────────┴──► one more unit? a worker less? a worker more?

What is in use with n units being loaded is, at most: what workers keep between units, n times what loading one takes on
top of that, the batches that are there, and n more in their slots. A unit is sent if that fits. So the prefetch shrinks
first, down to nothing: then a batch is loaded when it is asked for. Only where what the workers keep leaves no room for
a single unit, one of them is given up; it comes back when there is room for it and some more.

A worker that was killed for want of memory all the same means that fewer units may be loaded at once, for a while.
Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass

_WINDOW = 64  # units: what the largest of the last one or two windows took is expected of the next
_PATIENCE = 64  # units without a kill before one more may be loaded at once
_SPARE_SHARE = 10  # a tenth of the total is to be left when a worker comes back, or it would have to go at once


@dataclass(frozen=True, slots=True)
class Use:
    """What is in use, in bytes, and by how many."""

    total_bytes: int | None  # what workers and batches may use together; None: nobody has said
    kept_bytes: int  # by all workers, between units; of one that begins, what the others keep
    batches_bytes: int  # of batches that are finished, waiting or in the user's hands
    slots_bytes: int  # of slots that are free, or being filled
    loading: int  # units that workers have been sent and have not finished
    workers: int


class Largest:
    """The largest number within the last one to two windows."""

    __slots__ = ("_before", "_count", "_now", "value")

    def __init__(self) -> None:
        self.value: int | None = None
        self._before = self._now = self._count = 0

    def saw(self, number: int) -> None:
        self._now = max(self._now, number)
        self._count += 1
        self.value = max(self._before, self._now)
        if self._count == _WINDOW:
            self._before, self._now, self._count = self._now, 0, 0


class Governor:
    """For one iterator. `most_loading` is how many units may be under way in any case."""

    def __init__(self, most_loading: int) -> None:
        self._most_loading = most_loading
        self._allowed = most_loading
        self._units_since = 0  # the last kill, or the last time that more was allowed
        self._loading_bytes = Largest()
        self._batch_bytes = Largest()

    @property
    def is_free(self) -> bool:
        """Whether nothing has gone wrong lately: without a budget there is nothing to decide then."""
        return self._allowed == self._most_loading

    @property
    def loading_bytes(self) -> int:
        """What loading a unit takes of a worker, on top of what it keeps."""
        return self._loading_bytes.value or 0

    @property
    def batch_bytes(self) -> int:
        return self._batch_bytes.value or 0

    # -- what is learned -------------------------------------------------------------------------------------------

    def saw_unit(self, loading_bytes: int, batch_bytes: int) -> None:
        """A unit was loaded."""
        self._loading_bytes.saw(loading_bytes)
        self._batch_bytes.saw(batch_bytes)
        self._units_since += 1
        if self._units_since >= _PATIENCE and not self.is_free:
            self._allowed += 1
            self._units_since = 0

    def saw_kill(self, loading: int) -> None:
        """A worker was killed for want of memory, while so many units were being loaded."""
        self._allowed = max(1, min(self._allowed, loading) - 1)
        self._units_since = 0

    # -- what is decided -------------------------------------------------------------------------------------------

    def allows_one_more(self, use: Use) -> bool:
        """Whether another unit may be sent. (Who waits for a batch, and has none under way, sends one anyway.)"""
        if use.loading >= self._allowed:
            return False
        if use.total_bytes is None:
            return True
        if self._batch_bytes.value is None:
            return use.loading == 0  # the first one shows what they take
        return self.needs(use, use.loading + 1) <= use.total_bytes

    def has_plenty(self, use: Use) -> bool:
        """Whether there is room for twice as much as may ever be under way: no need to look each time."""
        if use.total_bytes is None or self._batch_bytes.value is None or not self.is_free:
            return False
        return self.needs(use, 2 * self._most_loading) <= use.total_bytes

    def gives_up_a_worker(self, use: Use) -> bool:
        """Whether what the workers keep leaves no room for a single unit."""
        if use.total_bytes is None or use.workers <= 1 or use.loading:
            return False
        return self._batch_bytes.value is not None and self.needs(use, 1) > use.total_bytes

    def takes_a_worker_back(self, use: Use, kept_bytes: int) -> bool:
        """Whether there is room for one that will keep so much."""
        if use.total_bytes is None:
            return self.is_free
        return self.needs(use, 1) + kept_bytes + use.total_bytes // _SPARE_SHARE <= use.total_bytes

    def needs(self, use: Use, loading: int) -> int:
        """What would be in use, at most, with so many units being loaded."""
        slots = max(use.slots_bytes, loading * self.batch_bytes)
        return use.kept_bytes + loading * self.loading_bytes + use.batches_bytes + slots
