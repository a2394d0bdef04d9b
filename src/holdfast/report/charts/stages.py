"""Time per stage as two bars: the workers' time by what they did, the training loop's by whether it waited. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import words
from holdfast.report.pace import Pace

WIDTH = 960.0
BAR = 26.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    name: str
    x: float
    width: float
    share: str
    seconds: str


@dataclass(frozen=True, slots=True)
class StageBar:
    """A whole, and its parts."""

    title: str
    description: str
    segments: tuple[Segment, ...]


def stage_bars(pace: Pace, duration_s: float) -> tuple[StageBar, ...]:
    """Those of which something is known."""
    bars = []
    if any(seconds > 0 for _, seconds in pace.stages):
        bars.append(_bar("in the workers, all together", list(pace.stages)))
    if pace.waited_share is not None:
        waited_s = pace.waited_share * duration_s
        bars.append(_bar("in the training loop", [("wait", waited_s), ("training", duration_s - waited_s)]))
    return tuple(bars)


def _bar(title: str, parts: list[tuple[str, float]]) -> StageBar:
    total = sum(seconds for _, seconds in parts)
    segments, x = [], 0.0
    for name, seconds in parts:
        width = round(WIDTH * seconds / total, 1) if total > 0 else 0.0
        segments.append(Segment(name, round(x, 1), width, words.share(seconds, total), words.duration(seconds)))
        x += width
    said = words.listed([f"{each.name} {each.seconds} ({each.share})" for each in segments])
    return StageBar(title, f"Time {title}: {said}.", tuple(segments))
