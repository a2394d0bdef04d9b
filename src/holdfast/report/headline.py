"""What stands at the top of a report: what happened, in a sentence and in a few more, and what to do about it.

Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import words
from holdfast.report.findings import Findings, Outcome, was_raised
from holdfast.report.remedies import Remedy, remedies_of
from holdfast.report.story import Told, story_of, were_lost, what_happened


@dataclass(frozen=True, slots=True)
class Headline:
    """The top of the page."""

    outcome: Outcome
    is_healthy: bool
    title: str
    story: tuple[Told, ...]
    remedies: tuple[Remedy, ...]


def headline_of(found: Findings) -> Headline:
    return Headline(
        outcome=found.outcome,
        is_healthy=found.is_healthy,
        title=_TITLES[found.outcome](found),
        story=tuple(story_of(found)),
        remedies=tuple(remedies_of(found)),
    )


def _finished(found: Findings) -> str:
    raised = next((group for group in reversed(found.incidents.groups) if was_raised(group)), None)
    if raised is not None and found.nouns.item == "sample":  # of calls, each has its own answer
        return f"An error reached {found.nouns.caller}: {what_happened(raised, found.nouns)}"
    lost = were_lost(found.losses.total, found.nouns) if found.losses.total else ""
    if found.incidents.total:
        return f"The run came through {words.plural(found.incidents.total, 'incident')}; {lost or 'nothing was lost'}"
    if lost:
        return f"No incident; {lost}"
    return "All went well" if found.pace.samples or found.pace.batches else "The run ended, and nothing was counted"


def _running(found: Findings) -> str:
    so_far = words.plural(found.incidents.total, "incident") if found.incidents.total else "no incident"
    return f"Running for {words.duration(found.duration_s)}, {so_far} so far"


def _cut_short(found: Findings) -> str:
    return f"Cut short after {words.duration(found.duration_s)}: the record has no end"


def _unreadable(found: Findings) -> str:
    return "Nothing of this record can be read"


_TITLES = {"finished": _finished, "running": _running, "cut short": _cut_short, "unreadable": _unreadable}
