"""What was found in a record, all parts side by side: what the words at the top are made from. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.records.reader import Run
from holdfast.report.entries import Entry
from holdfast.report.incidents import Group, Incidents
from holdfast.report.losses import Losses
from holdfast.report.nouns import Nouns, front_of
from holdfast.report.pace import Pace

Outcome = Literal["finished", "running", "cut short", "unreadable"]


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one run."""

    start: Entry
    outcome: Outcome
    is_readable: bool
    """Whether all of the record could be read, by a version that knows what it means."""
    duration_s: float
    incidents: Incidents
    pace: Pace
    losses: Losses
    restarts: int
    nouns: Nouns

    @property
    def is_healthy(self) -> bool:
        is_whole = self.is_readable and not (self.incidents.total or self.losses.total)
        return is_whole and self.outcome in ("finished", "running")

    @property
    def worst_first(self) -> list[Group]:
        return sorted(self.incidents.groups, key=_weight, reverse=True)

    @property
    def front(self) -> str:
        """What the user made: "DataLoader"."""
        return front_of(self.start)


def outcome_of(run: Run) -> Outcome:
    if run.end is not None:
        return "finished"
    if run.is_alive:
        return "running"
    return "cut short" if run.start or run.incidents or run.readings else "unreadable"


def was_raised(group: Group) -> bool:
    return any(done.startswith("raised") for done, _ in group.done)


def _weight(group: Group) -> tuple[bool, int, int]:
    """What ended the run, then what lost most samples, then what came most often."""
    lost = sum(number for done, number in group.done if done.startswith(("skipped", "replaced")))
    return was_raised(group), lost, group.count
