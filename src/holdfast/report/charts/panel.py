"""A small chart of one quantity over time: a line, the area under it, and a limit where there is one. Pure.

Several of them, with one scale for all, are compared at a glance; one chart with twelve lines is not.

Runs in: wherever records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from holdfast import words
from holdfast.report.charts.scale import Scale, Tick

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320, 132, 52, 10, 26, 20

Point = tuple[float, float, int]
"""Seconds, value, and whose: where that changes the line is broken."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of them."""

    title: str
    note: str
    description: str
    lines: tuple[str, ...]
    """Paths."""
    areas: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    """Where a line has one point only."""
    limit_y: float | None
    ticks: tuple[Tick, ...]
    """Beside it."""
    times: tuple[Tick, ...]
    """Below it: the first and the last."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Of all panels that are to be compared."""

    x: Scale
    y: Scale
    ticks: tuple[Tick, ...]
    times: tuple[Tick, ...]


def axes(duration_s: float, most: float, ticks: Callable[[Scale], tuple[Tick, ...]]) -> Axes:
    x, y = Scale(duration_s, LEFT, WIDTH - RIGHT), Scale(most, HEIGHT - BOTTOM, TOP)
    return Axes(x, y, ticks(y), (Tick(x.begin, "0 s"), Tick(x.end, words.duration(duration_s))))


def panel(
    axes: Axes, points: Sequence[Point], title: str, *, note: str, description: str, limit: float | None = None
) -> Panel:
    x, y = axes.x, axes.y
    runs = [[(x(at_s), y(value)) for at_s, value, _ in part] for _, part in groupby(points, key=lambda point: point[2])]
    whole = [run for run in runs if len(run) > 1]
    return Panel(
        title=title,
        note=note,
        description=description,
        lines=tuple(_path(run) for run in whole),
        areas=tuple(f"{_path(run)}V{y.begin:g}H{run[0][0]:g}z" for run in whole),
        dots=tuple(run[0] for run in runs if len(run) == 1),
        limit_y=None if limit is None else y(limit),
        ticks=axes.ticks,
        times=axes.times,
    )


def _path(run: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in run)
