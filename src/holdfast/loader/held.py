"""Units that wait for others to be finished: those to be loaded alone, and whatever comes up meanwhile. Pure.

A unit whose worker was killed for want of memory is loaded once more while nothing else is: what is being loaded comes
to its end first, and what is to be sent waits until it is done. Runs in: main process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection


class Held:
    """The units of one iterator that are held back."""

    def __init__(self) -> None:
        self._alone: deque[int] = deque()
        self._others: deque[int] = deque()
        self._running: int | None = None  # alone, now

    @property
    def is_busy(self) -> bool:
        """Whether anything waits, or is being loaded alone: then nothing new is to be sent."""
        return self._running is not None or bool(self._alone or self._others)

    def holds_back(self, unit: int, *, alone: bool) -> bool:
        """A unit is to be sent. False: now."""
        if unit == self._running:
            self._running = None  # once more, then
        if not alone and not self.is_busy:
            return False
        if unit not in self._alone and unit not in self._others:
            (self._alone if alone else self._others).append(unit)
        return True

    def next_unit(self, loading: Collection[int]) -> int | None:
        """What may be sent now, given what has been sent and is not finished. The held ones among these are lost."""
        if self._running is not None and self._running in loading:
            return None
        self._running = None
        if not self._alone:
            return self._others.popleft() if self._others else None
        if any(unit not in self._alone and unit not in self._others for unit in loading):
            return None
        self._running = self._alone.popleft()
        return self._running

    def put_back(self, unit: int) -> None:
        """It was to be sent, and cannot be yet: it is the next one again, before what its worker gets after it."""
        if unit == self._running:
            self._running = None
            self._alone.appendleft(unit)
        else:
            self._others.appendleft(unit)

    def let_go(self) -> list[int]:
        """All that wait, in order: nobody is interested in them any more."""
        units = sorted([*self._alone, *self._others])
        self._alone.clear()
        self._others.clear()
        self._running = None
        return units
