"""Memory per worker against its limit, and the rate over time, as panels. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

from holdfast import words
from holdfast.report.charts.panel import Axes, Panel, axes, panel
from holdfast.report.charts.scale import Scale, Tick, byte_ticks, number_ticks
from holdfast.report.memory import MemoryUse, Series
from holdfast.report.pace import Pace

_ROOM = 1.05
_FEWEST = 2
_FAR = 4.0
"""A limit so many times above everything that was seen would make a flat line of it: it is told, and not drawn."""


def memory_panels(memory: MemoryUse, duration_s: float) -> tuple[Panel, ...]:
    """All workers on one scale."""
    series = memory.workers
    highest = max((one.peak_bytes for one in series), default=0.0)
    limits = [one.limit_bytes for one in series if one.limit_bytes is not None]
    most = max([highest, *(limit for limit in limits if limit <= _FAR * highest)])
    shared = axes(duration_s, most * _ROOM, byte_ticks)
    return tuple(_memory_panel(one, shared) for one in series)


def _memory_panel(series: Series, shared: Axes) -> Panel:
    limit = series.limit_bytes
    of_limit = "" if limit is None else f" of {words.size(limit)}"
    note = f"peak {words.size(series.peak_bytes)}{of_limit}"
    description = f"Memory of {series.name} over time: {note}{', its limit' if of_limit else ''}."
    drawn = limit if limit is not None and limit <= shared.y.most else None
    return panel(shared, series.points, series.name, note=note, description=description, limit=drawn)


def rate_panels(pace: Pace, duration_s: float, item: str = "sample") -> tuple[Panel, ...]:
    """Samples in a second, and how much of each moment the training loop waited, where there was one."""
    if len(pace.rates) < _FEWEST:
        return ()
    highest = max(rate.samples_per_s for rate in pace.rates)
    peak = f"at most {highest:,.0f}"
    rates = panel(
        axes(duration_s, highest * _ROOM, number_ticks),
        [(rate.at_s, rate.samples_per_s, 0) for rate in pace.rates],
        f"{item}s per second",
        note=peak,
        description=f"{item.capitalize()}s per second over time: {peak}.",
    )
    if pace.waited_share is None:
        return (rates,)
    waits = panel(
        axes(duration_s, 100, _percents),
        [(rate.at_s, 100 * rate.waited_share, 0) for rate in pace.rates],
        "waiting for batches",
        note=words.share(pace.waited_share, 1.0),
        description="How much of the time the training loop waited for a batch, over time.",
    )
    return rates, waits


def _percents(scale: Scale) -> tuple[Tick, ...]:
    return tuple(Tick(scale(value), f"{value} %") for value in (0, 50, 100))
