"""Commands that a report may name: only those that this installation has.

They are there to be pasted into a shell: what comes from the record is quoted.

Runs in: wherever reports are made.
"""

from __future__ import annotations

import importlib.util
from shlex import quote

from holdfast.report.incidents import Group
from holdfast.report.model import Report

NO_TARGET = "MODULE:DATASET"


def has(command: str) -> bool:
    """Whether `holdfast COMMAND` exists. It is looked for by name: this package lies below the command line."""
    return importlib.util.find_spec(f"holdfast.cli.{command}") is not None


def replay(report: Report, group: Group) -> str:
    """Loads the last sample of a group alone; empty where there is none, as of calls, or no such command."""
    with_sample = [member for member in group.members if member.sample and member.id]
    if not with_sample or report.nouns.item != "sample" or not has("replay"):
        return ""
    return f"holdfast replay {quote(with_sample[-1].id)} --dataset {quote(_target(report) or NO_TARGET)}"


def _target(report: Report) -> str:
    """MODULE:DATASET, where the record has it."""
    return next((fact.value for fact in report.facts if fact.name == "found as"), "")
