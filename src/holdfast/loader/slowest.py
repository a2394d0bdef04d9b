"""The samples that took longest: ten of them, each once.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.loader.skips import number_or_itself

_MOST = 10


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample that took long to load."""

    index: Any
    """The dataset's; of an iterable, the worker and the place in its stream."""
    seconds: float
    worker_id: int | None
    """None: it was loaded without workers."""
    epoch: int


class Slowest:
    """`samples` are the slowest so far, slowest first."""

    def __init__(self) -> None:
        self.samples: tuple[SlowSample, ...] = ()

    def saw(self, index: Any, seconds: float, worker_id: int | None, epoch: int) -> None:
        if len(self.samples) == _MOST and seconds <= self.samples[-1].seconds:
            return
        sample = SlowSample(number_or_itself(index), seconds, worker_id, epoch)
        same = next((one for one in self.samples if _is_same(one.index, sample.index)), None)
        if same is not None and same.seconds >= seconds:
            return
        others = [one for one in self.samples if one is not same]
        self.samples = tuple(sorted([*others, sample], key=lambda one: -one.seconds)[:_MOST])


def _is_same(one: Any, other: Any) -> bool:
    """An index is any object of the user's: an array compares to an array, and some raise."""
    try:
        return one is other or bool(one == other)
    except Exception:
        return False
