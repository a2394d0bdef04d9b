"""A worker's watch on its own growth: what it keeps from unit to unit, and what it copies of its parent's memory.

It looks between two units, when nothing is in hand. A leak shows in its own memory. What a forked worker writes to, and
be it the reference counts of a list that it only reads, is copied page by page: that shows nowhere but in the pages
that are its alone, which takes milliseconds to count, so it is counted seldom, for a hundredth of its CPU time at most.

Each is said once. A worker that has grown so much that it threatens what there is leaves between two units.
Runs in: worker process.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from holdfast.memory import smaps
from holdfast.memory.growth import Trend
from holdfast.memory.origins import Origins

_LOOK_EVERY = 8  # readings
_FIRST_COUNT_S = 2.0  # of CPU time: a worker that waits has written to nothing
_COUNT_S_PER_BYTE = 0.025 / (1 << 30)  # about, of small pages
_SHARE_OF_TIME = 100
_LEAST_COPIED = 128 << 20  # any forked interpreter copies some of its own objects


class Grown(NamedTuple):
    """What a worker says of itself. `copied_bytes` is 0 where it is about its own memory."""

    bytes_per_sample: float
    grown_bytes: int
    samples: int
    largest_in: str
    copied_bytes: int


class GrowthWatch:
    """For one life of a worker."""

    def __init__(self, most_bytes: int, born_bytes: int, how: str) -> None:
        """`most_bytes` is how much it may grow; `born_bytes` what it shares with its parent."""
        self._most_bytes = most_bytes
        self._born_bytes = born_bytes
        self._origins = Origins(how)
        self._trend = Trend()
        self._readings = 0
        self._has_said = False
        self._has_copied = born_bytes < _LEAST_COPIED  # too little to be said
        self._pause_s = max(_FIRST_COUNT_S, _SHARE_OF_TIME * _COUNT_S_PER_BYTE * born_bytes)
        self._count_at_s = time.process_time() + self._pause_s
        self.is_to_leave = False

    def saw(self, samples: int, kept_bytes: int) -> Grown | None:
        """Between two units: how many samples it has loaded so far, and what it keeps. Something to be said, or not."""
        self._trend.saw(samples, kept_bytes)
        self._readings += 1
        if self._readings % _LOOK_EVERY == 0 and (said := self._look()) is not None:
            return said
        if not self._has_copied and time.process_time() >= self._count_at_s:
            return self._count_copies(samples, kept_bytes)
        return None

    def _look(self) -> Grown | None:
        growth = self._trend.growth()
        if growth is None:
            return None
        self.is_to_leave = growth.grown_bytes > self._most_bytes
        if self._has_said:
            return None
        self._has_said = True
        largest_in = self._origins.largest_growth(growth.grown_bytes)
        return Grown(growth.bytes_per_sample, growth.grown_bytes, growth.samples, largest_in, 0)

    def _count_copies(self, samples: int, kept_bytes: int) -> Grown | None:
        began_s = time.process_time()
        own = max(0, kept_bytes - self._born_bytes)
        copied = smaps.private_bytes("self") - own
        if copied >= _LEAST_COPIED:
            copied = smaps.private_anonymous_bytes("self") - own  # it may have been slots
        now_s = time.process_time()
        self._pause_s = max(2 * self._pause_s, _SHARE_OF_TIME * (now_s - began_s))
        self._count_at_s = now_s + self._pause_s
        if copied < _LEAST_COPIED:
            return None
        self._has_copied = True
        return Grown(copied / max(1, samples), 0, samples, "", copied)
