"""Where a value lies on an axis, and which values are written beside it. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from holdfast import words

_SECOND_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_MINUTE_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis, and what is written there."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places. An axis without length puts everything at its beginning."""

    most: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        part = min(max(value / self.most, 0.0), 1.0) if self.most > 0 else 0.0
        return round(self.begin + part * (self.end - self.begin), 1)


def time_ticks(scale: Scale, most: int = 8) -> tuple[Tick, ...]:
    """Of seconds: round ones, and never more than `most`, whatever the length."""
    steps = (*_SECOND_STEPS, *_MINUTE_STEPS)
    step = next((step for step in steps if scale.most / step <= most - 1), None)
    if step is None:
        step = _DAY_S * _round_up(scale.most / _DAY_S / (most - 1))
    return _ticks(scale, step, _time_label)


def byte_ticks(scale: Scale, most: int = 4) -> tuple[Tick, ...]:
    """Of sizes, in powers of two."""
    step = 2.0 ** math.ceil(math.log2(max(scale.most / (most - 1), 1.0)))
    return _ticks(scale, step, lambda nbytes: words.size(nbytes).replace(".0 ", " ") if nbytes else "0")


def number_ticks(scale: Scale, most: int = 4) -> tuple[Tick, ...]:
    return _ticks(scale, _round_up(scale.most / (most - 1)), lambda number: f"{number:,.10g}")


def _ticks(scale: Scale, step: float, label: Callable[[float], str]) -> tuple[Tick, ...]:
    if not scale.most > 0 or not step > 0:
        return (Tick(scale.begin, "0"),)
    count = math.floor(scale.most / step + 1e-9)
    return tuple(Tick(scale(number * step), label(number * step)) for number in range(count + 1))


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _time_label(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.10g} s"
    for unit_s, below_s, unit in ((_DAY_S, math.inf, "d"), (3600, _DAY_S, "h"), (60, 3600, "min")):
        if seconds % unit_s == 0 and seconds < below_s:
            return f"{seconds / unit_s:,.0f} {unit}"
    return words.duration(seconds)
