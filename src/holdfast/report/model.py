"""A record as a report tells it. Every form of the report, page, text and JSON, is made from this and nothing else.

    reader.Run ──► span, incidents, lives, memory, pace, losses ──► findings ──► headline ──► Report

All texts are clean, and everything is bounded by what a page can hold, whatever was in the record.

Pure, but for the clock while a run goes on, and the question whether it is among the runs here. Runs in: wherever
records are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast import words
from holdfast.records import reader
from holdfast.records.reader import Run
from holdfast.report import clean, entries
from holdfast.report.facts import Fact, facts_of
from holdfast.report.findings import Findings, outcome_of
from holdfast.report.headline import Headline, headline_of
from holdfast.report.incidents import Incidents, incidents_of
from holdfast.report.lives import Timeline, timeline_of
from holdfast.report.losses import Losses, losses_of
from holdfast.report.memory import MemoryUse, memory_of
from holdfast.report.nouns import Nouns, nouns_of
from holdfast.report.pace import Pace, pace_of
from holdfast.report.span import span_of


@dataclass(frozen=True, slots=True)
class Report:
    """All of it, in the order of the page."""

    run_id: str
    started: float | None
    """Seconds since 1970; None where the record does not say."""
    duration_s: float
    headline: Headline
    warnings: tuple[str, ...]
    """Of the record itself: what of it could not be read, or is not there."""
    restarts: int
    timeline: Timeline
    memory: MemoryUse
    pace: Pace
    incidents: Incidents
    losses: Losses
    facts: tuple[Fact, ...]
    nouns: Nouns
    is_found: bool
    """Whether commands find the run by its id: it is not a file that was handed on."""

    @property
    def began(self) -> str:
        return words.moment(self.started)


def report_of(run: Run) -> Report:
    """Never raises for what is in a record."""
    span = span_of(run)
    incidents, pace, losses = incidents_of(run, span), pace_of(run, span), losses_of(run, span)
    restarts = max(entries.count(run.last_counts, "restarts"), _noted_restarts(run))
    found = Findings(
        start=run.start,
        outcome=outcome_of(run),
        is_readable=not (run.damaged_lines or run.is_newer),
        duration_s=span.duration_s,
        incidents=incidents,
        pace=pace,
        losses=losses,
        restarts=restarts,
        nouns=nouns_of(run.start),
    )
    return Report(
        run_id=clean.line(run.id, 40),
        started=span.started,
        duration_s=span.duration_s,
        headline=headline_of(found),
        warnings=tuple(_warnings(run)),
        restarts=restarts,
        timeline=timeline_of(run, span),
        memory=memory_of(run, span),
        pace=pace,
        incidents=incidents,
        losses=losses,
        facts=facts_of(run, span),
        nouns=found.nouns,
        is_found=reader.is_found(run),
    )


def _noted_restarts(run: Run) -> int:
    """Also those since the last reading, where there is no end."""
    return sum(line.get("event") == "started" and line.get("why") == "restart" for line in run.workers)


def _warnings(run: Run) -> Iterator[str]:
    if run.is_newer:
        version = entries.text(run.start, "holdfast_version", 40)
        yield (
            f"This record was written by a newer version of holdfast ({version}): what is told here may be "
            f"incomplete, or mean something else. Update holdfast to read it."
        )
    if run.damaged_lines:
        yield f"{words.plural(run.damaged_lines, 'line')} of the record could not be read, and went unheeded."
    if not run.start and (run.incidents or run.readings or run.end):
        yield "The first line of the record could not be read: what ran is not known."
    if run.is_full:
        yield "There were more incidents than a record keeps: the others are counted only."
    for what, key in (("readings", "readings_left_out"), ("lines on workers", "worker_lines_left_out")):
        left_out = entries.count(run.end or {}, key)
        if left_out:
            yield f"Did not fit into the record: {left_out:,} {what}."
