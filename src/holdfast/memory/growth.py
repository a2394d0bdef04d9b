"""Whether memory grows steadily, or has only warmed up. Pure.

    readings (samples loaded, bytes) ──► a bounded number of points ──► Growth, if it is steady

A leak adds about as much with every sample. A cache that fills, lazy imports and an allocator's reserves add less and
less. So the first quarter of the samples is left out, the rest is cut into three parts, and the lowest reading of each
is taken, which is what is left when nothing is in hand: it must go up from part to part, the second time by at least
half as much as the first. Runs in: worker process.
"""

from __future__ import annotations

from dataclasses import dataclass

_MOST_POINTS = 64
_FEWEST_POINTS = 16
_LEAST_BYTES = 32 << 20  # what is less is no reason to say anything


@dataclass(frozen=True, slots=True)
class Growth:
    """A steady one."""

    bytes_per_sample: float
    grown_bytes: int  # since the first reading
    samples: int  # loaded since then


class Trend:
    """The memory of one process over its life. Two readings become one when there are too many: the lower of them."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []  # samples, bytes
        self._step = 1  # readings that make a point
        self._count = 0

    def saw(self, samples: int, nbytes: int) -> None:
        """`samples` never goes down."""
        if self._count % self._step == 0:
            self._points.append((samples, nbytes))
        else:
            self._points[-1] = self._points[-1][0], min(self._points[-1][1], nbytes)
        self._count += 1
        if len(self._points) > _MOST_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [(early[0], min(early[1], late[1])) for early, late in pairs]
            self._step *= 2
            self._count = 0

    def growth(self) -> Growth | None:
        if len(self._points) < _FEWEST_POINTS:
            return None
        (first, first_bytes), (last, last_bytes) = self._points[0], self._points[-1]
        (early, early_bytes), (_, middle_bytes), (late, late_bytes) = self._lowest(first, last)
        rise, next_rise = middle_bytes - early_bytes, late_bytes - middle_bytes
        if rise <= 0 or 2 * next_rise < rise or late_bytes - early_bytes < _LEAST_BYTES:
            return None
        return Growth((late_bytes - early_bytes) / (late - early), last_bytes - first_bytes, last - first)

    def _lowest(self, first: int, last: int) -> list[tuple[int, int]]:
        """Of each of the last three quarters of the samples; what a quarter without readings had is that before it."""
        quarters: list[list[tuple[int, int]]] = [[], [], [], []]
        for point in self._points:
            quarters[min(3, 4 * (point[0] - first) // max(1, last - first))].append(point)
        lowest, found = self._points[0], []
        for points in quarters:
            lowest = min(points, key=lambda point: point[1], default=lowest)
            found.append(lowest)
        return found[1:]
