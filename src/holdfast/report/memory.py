"""Memory of the workers over time, from the readings of a run, thinned out to what a chart can show.

Of each worker its own memory ("private": what is no file, and not shared as batches are), and where the platform does
not tell that, what it has in memory at all. Of several readings that fall on one point of the chart the highest stays.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.records.reader import Run
from holdfast.report import entries
from holdfast.report.span import Span

MOST_POINTS = 240
MOST_SERIES = 12
"""Of more workers, those that had the most."""


@dataclass(frozen=True, slots=True)
class Series:
    """One process after another in one worker's place, or the main process."""

    name: str
    points: tuple[tuple[float, float, int], ...]
    """Seconds since the start, bytes, pid."""
    peak_bytes: float
    limit_bytes: float | None
    """What `memory_limit` allows: so much above the least it was seen with. None: no limit."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Of all processes."""

    readings: int
    limit_bytes: float | None
    """`memory_limit`: what a worker may take beyond its start."""
    budget_bytes: float | None
    """`memory_budget`: of all workers and batches together."""
    workers: tuple[Series, ...]
    not_shown: int
    main: Series | None
    total_peak_bytes: float
    """Of all workers at one moment."""


def memory_of(run: Run, span: Span) -> MemoryUse:
    by_worker: dict[tuple[int, str], list[tuple[float, float, int]]] = defaultdict(list)
    main: list[tuple[float, float, int]] = []
    total_peak = 0.0
    for reading in run.readings:
        at_s = span.at_s(entries.number(reading, "time"))
        found = [each for item in entries.pairs(reading, "workers") if (each := _worker(item)) is not None]
        for place, nbytes, pid in found:
            by_worker[place].append((at_s, nbytes, pid))
        total_peak = max(total_peak, sum(nbytes for _, nbytes, _ in found))
        own = reading.get("main")
        if isinstance(own, list) and (nbytes_of_main := _bytes(own)) is not None:
            main.append((at_s, nbytes_of_main, 0))
    limit = entries.number(run.start, "memory_limit_bytes")
    series = [_series(f"{kind} {place}", points, span, limit) for (place, kind), points in by_worker.items()]
    highest = sorted(series, key=lambda one: -one.peak_bytes)[:MOST_SERIES]
    return MemoryUse(
        readings=len(run.readings),
        limit_bytes=limit,
        budget_bytes=entries.number(run.start, "memory_budget_bytes"),
        workers=tuple(one for one in series if one in highest),
        not_shown=len(series) - len(highest),
        main=_series("main process", main, span, None) if main else None,
        total_peak_bytes=total_peak,
    )


def _worker(item: Sequence[object]) -> tuple[tuple[int, str], float, int] | None:
    """A worker's place, its bytes, its pid. Older records tell processes apart only."""
    pid = entries.as_number(item[0]) if item else None
    nbytes = _bytes(item[1:3])
    if pid is None or nbytes is None:
        return None
    worker = entries.as_number(item[3]) if len(item) > 3 else None
    return ((int(pid), "process") if worker is None else (int(worker), "worker")), nbytes, int(pid)


def _bytes(pair: Sequence[object]) -> float | None:
    """[resident, private]: the second, where it is known. A process that has just begun, or ended, has none."""
    known = [nbytes for nbytes in map(entries.as_number, reversed(pair)) if nbytes is not None]
    return known[0] if known and known[0] > 0 else None


def _series(name: str, points: list[tuple[float, float, int]], span: Span, limit: float | None) -> Series:
    start_bytes = min(nbytes for _, nbytes, _ in points)
    return Series(
        name=name,
        points=tuple(_thinned(points, span.duration_s)),
        peak_bytes=max(nbytes for _, nbytes, _ in points),
        limit_bytes=None if limit is None else start_bytes + limit,
    )


def _thinned(points: list[tuple[float, float, int]], duration_s: float) -> list[tuple[float, float, int]]:
    if len(points) <= MOST_POINTS:
        return points
    highest: dict[int, tuple[float, float, int]] = {}
    for point in points:
        place = int(MOST_POINTS * point[0] / duration_s) if duration_s else 0
        if place not in highest or point[1] > highest[place][1]:
            highest[place] = point
    return [highest[place] for place in sorted(highest)]
