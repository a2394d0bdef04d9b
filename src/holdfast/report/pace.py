"""Where the time of a run went: in the workers by stage, in the training loop by waiting, and which samples were slow.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from holdfast.counted import STAGES
from holdfast.records.reader import Run
from holdfast.report import entries
from holdfast.report.entries import Entry
from holdfast.report.nouns import nouns_of
from holdfast.report.span import Span

MOST_POINTS = 240
MOST_SLOW = 10
BOTTLENECK_SHARE = 0.2
"""From here on the training loop's wait is worth a word."""


@dataclass(frozen=True, slots=True)
class Slow:
    """One of the slowest samples."""

    sample: str
    seconds: float
    worker_id: int | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Rate:
    """Between two readings."""

    at_s: float
    samples_per_s: float
    waited_share: float
    """Of that time the training loop waited so much, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Of a whole run."""

    batches: int
    samples: int
    waited_s: float
    waited_share: float | None
    """Of the run; None where it is too short to say, nothing was counted, or nobody trained."""
    stages: tuple[tuple[str, float], ...]
    """Name and seconds, over all workers; empty in older records."""
    rates: tuple[Rate, ...]
    slowest: tuple[Slow, ...]

    @property
    def is_bottleneck(self) -> bool:
        """Whether the training loop stood still for want of batches."""
        return self.waited_share is not None and self.waited_share >= BOTTLENECK_SHARE


def pace_of(run: Run, span: Span) -> Pace:
    last = run.last_counts
    waited_s = max(entries.number(last, "waited_s") or 0.0, 0.0)
    batches = entries.count(last, "batches")
    can_tell = batches and span.duration_s > 0 and nouns_of(run.start).trains
    share = min(waited_s / span.duration_s, 1.0) if can_tell else None
    totals = entries.table(last, "stages")
    return Pace(
        batches=batches,
        samples=entries.count(last, "samples"),
        waited_s=waited_s,
        waited_share=share,
        stages=tuple(_stage(totals, key) for key in STAGES) if totals else (),
        rates=tuple(_rates(run, span)),
        slowest=tuple(_slowest(last)),
    )


def _stage(totals: Entry, key: str) -> tuple[str, float]:
    return key.removesuffix("_s"), max(entries.number(totals, key) or 0.0, 0.0)


def _rates(run: Run, span: Span) -> list[Rate]:
    """Between readings, of which only so many are taken as a chart has points."""
    every = max(len(run.readings) // MOST_POINTS, 1)
    counted = [_counted(line, span) for line in run.readings[::every]]
    rates = []
    for (before_s, before, waited_before_s), (at_s, samples, waited_s) in pairwise(counted):
        if at_s > before_s:
            share = min(max((waited_s - waited_before_s) / (at_s - before_s), 0.0), 1.0)
            rates.append(Rate(at_s, max(samples - before, 0) / (at_s - before_s), share))
    return rates


def _counted(line: Entry, span: Span) -> tuple[float, int, float]:
    """When, how many samples, how many seconds waited."""
    at_s = span.at_s(entries.number(line, "time"))
    return at_s, entries.count(line, "samples"), entries.number(line, "waited_s") or 0.0


def _slowest(last: Entry) -> list[Slow]:
    found = []
    for item in entries.pairs(last, "slowest")[:MOST_SLOW]:
        index, seconds, worker, epoch = [*item, None, None, None, None][:4]
        taken_s = entries.as_number(seconds)
        if taken_s is not None and taken_s >= 0:
            found.append(Slow(entries.index(index), taken_s, entries.as_whole(worker), entries.as_whole(epoch)))
    return found
