"""Commands that a report names.

They are there to be pasted into a shell: what comes from the record is quoted.

Runs in: wherever reports are made.
"""

from __future__ import annotations

from shlex import quote

from holdfast.report.incidents import Group
from holdfast.report.model import Report

NO_TARGET = "MODULE:DATASET"


def replay(report: Report, group: Group) -> str:
    """Loads the last sample of a group alone; empty where there is none, as of calls."""
    with_sample = [member for member in group.members if member.sample and member.id]
    if not with_sample or report.nouns.item != "sample":
        return ""
    return f"holdfast replay {quote(with_sample[-1].id)} --dataset {quote(_target(report) or NO_TARGET)}"


def replay_does(report: Report) -> str:
    """What comes of that, and where it can be run: what was handed on is not among the runs here."""
    return "loads this one sample alone" if report.is_found else "loads this one sample alone, where the run was"


def _target(report: Report) -> str:
    """MODULE:DATASET, where the record has it."""
    return next((fact.value for fact in report.facts if fact.name == "found as"), "")
