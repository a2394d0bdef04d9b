"""The time that a run took: everything else in a report is told in seconds since its start.

Where the first line is damaged the run begins with the first line that says a time; where the last is missing it ends,
as far as is known, with the last one that does.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.records.reader import Run
from holdfast.report import entries


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when."""

    started: float | None
    """Seconds since 1970; None: the record says no time at all."""
    duration_s: float

    def at_s(self, moment: float | None) -> float:
        """A time as seconds since the start, within the run: clocks are set, and files are made by hand."""
        if moment is None or self.started is None:
            return 0.0
        return min(max(round(moment - self.started, 3), 0.0), self.duration_s)


def span_of(run: Run) -> Span:
    said = [moment for moment in _moments(run) if moment is not None and moment > 0]
    started = entries.number(run.start, "time") or min(said, default=None)
    if started is None:
        return Span(None, 0.0)
    ended = None if run.end is None else entries.number(run.end, "time")
    if ended is None:
        ended = time.time() if run.is_alive else max(said, default=started)
    return Span(started, max(round(ended - started, 3), 0.0))


def _moments(run: Run) -> Iterator[float | None]:
    for line in (run.start, *run.incidents, *run.readings, *run.workers, run.end or {}):
        yield entries.number(line, "time")
