"""The gap that the training loop sees for each kill. Pure: times in, figures out.

A kill can delay what was under way when it came, and batches come in order: so its gap is the longest interval between
two deliveries from the one it falls into until as many batches have come as were under way. In a storm of kills
these windows overlap: a kill whose window meets that of a slower sort (a stop, or a supervisor's death) has no figure
of its own, because what would be measured is the other. Kills before the first batch of an epoch or after its last
one are survived or not, but have no gap.
Runs in: main.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .killer import Kill

_FELT_S = 3.0  # a kill between epochs, in the next one


@dataclass(frozen=True, slots=True)
class Gap:
    """What one kill cost: `gap_s`, where a unit takes `unit_s` to load."""

    gap_s: float
    unit_s: float

    @property
    def above_s(self) -> float:
        """What the kill cost beyond loading the lost unit."""
        return self.gap_s - self.unit_s


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in three figures."""

    median: float
    p95: float
    worst: float


def spread(values: Iterable[float]) -> Spread | None:
    """None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(_quantile(ordered, 0.5), _quantile(ordered, 0.95), ordered[-1])


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def sort_of(kill: Kill) -> str:
    """Which line of the report a kill belongs to."""
    if kill.is_stop:
        return f"{kill.role}, stopped"
    return f"{kill.role}, beside a stopped supervisor" if kill.supervisor_is_stopped else kill.role


def intervals(deliveries: Sequence[float]) -> list[float]:
    """Between each delivery of an epoch and the one before."""
    return [later - earlier for earlier, later in pairwise(deliveries)]


def gaps_by_sort(
    kills: Sequence[Kill], epochs: Sequence[Sequence[float]], capacity: int, unit_s: float
) -> dict[str, list[Gap]]:
    """The gaps of all kills that have one, by sort."""
    windows = [_window(kill.time_s, epochs, capacity) for kill in kills]
    spans = [_span(kill, window) for kill, window in zip(kills, windows, strict=True)]
    slow = [(_rank(kill), span) for kill, span in zip(kills, spans, strict=True) if _rank(kill)]
    found: dict[str, list[Gap]] = {}
    for kill, window, span in zip(kills, windows, spans, strict=True):
        if window and not any(rank > _rank(kill) and _overlap(span, other) for rank, other in slow):
            found.setdefault(sort_of(kill), []).append(Gap(max(intervals(window)), unit_s))
    return found


def _window(time_s: float, epochs: Sequence[Sequence[float]], capacity: int) -> Sequence[float]:
    """The deliveries around a kill, from the one before it on; empty if it came between epochs."""
    for deliveries in epochs:
        after = bisect_right(deliveries, time_s)
        if 0 < after < len(deliveries):
            return deliveries[after - 1 : after + capacity + 1]
    return ()


def _span(kill: Kill, window: Sequence[float]) -> tuple[float, float]:
    """From when to when a kill can be felt."""
    return (window[0], window[-1]) if window else (kill.time_s, kill.time_s + _FELT_S)


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _rank(kill: Kill) -> int:
    """How slow it is to recover from a kill of this sort."""
    return (kill.role == "supervisor") + 2 * kill.is_stop + 2 * kill.supervisor_is_stopped
