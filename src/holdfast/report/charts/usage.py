"""Memory per worker against its limit, and the rate over time, as panels. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

from holdfast.report import words
from holdfast.report.charts.panel import Panel, axes, panel
from holdfast.report.charts.scale import Scale, Tick, byte_ticks, number_ticks
from holdfast.report.memory import MemoryUse, Series
from holdfast.report.pace import Pace

_FAR = 4.0
"""A limit so many times above everything that was seen would make a flat line of it: it is told, and not drawn."""


def memory_panels(memory: MemoryUse, duration_s: float) -> tuple[Panel, ...]:
    """All workers on one scale."""
    series = memory.workers
    highest = max((one.peak_bytes for one in series), default=0.0)
    limits = [one.limit_bytes for one in series if one.limit_bytes is not None]
    most = max([highest, *(limit for limit in limits if limit <= _FAR * highest)])
    x, y = axes(duration_s, most * 1.05)
    return tuple(_memory_panel(one, x, y, duration_s) for one in series)


def _memory_panel(series: Series, x: Scale, y: Scale, duration_s: float) -> Panel:
    limit = series.limit_bytes
    is_drawn = limit is not None and limit <= y.most
    note = f"peak {words.size(series.peak_bytes)}"
    if limit is not None:
        note += f" of {words.size(limit)}"
    description = f"Memory of {series.name} over time: {note}{'' if limit is None else ', which is its limit'}."
    drawn = limit if is_drawn else None
    return panel(series.name, note, description, series.points, x, y, byte_ticks(y), _ends(x, duration_s), drawn)


def rate_panels(pace: Pace, duration_s: float) -> tuple[Panel, ...]:
    """Samples in a second, and how much of each moment the training loop waited."""
    if len(pace.rates) < 2:
        return ()
    highest = max(rate.samples_per_s for rate in pace.rates)
    x, y = axes(duration_s, highest * 1.05)
    rates = [(rate.at_s, rate.samples_per_s, 0) for rate in pace.rates]
    waits = [(rate.at_s, 100 * rate.waited_share, 0) for rate in pace.rates]
    _, percent = axes(duration_s, 100)
    ticks = tuple(Tick(percent(value), f"{value} %") for value in (0, 50, 100))
    ends = _ends(x, duration_s)
    peak = f"at most {highest:,.0f} a second"
    return (
        panel("samples per second", peak, f"Samples per second over time: {peak}.", rates, x, y, number_ticks(y), ends),
        panel(
            "waiting for batches",
            words.share(pace.waited_share or 0.0, 1.0),
            "How much of the time the training loop waited for a batch, over time.",
            waits,
            x,
            percent,
            ticks,
            ends,
        ),
    )


def _ends(x: Scale, duration_s: float) -> tuple[Tick, ...]:
    return (Tick(x.begin, "0 s"), Tick(x.end, words.duration(duration_s)))
