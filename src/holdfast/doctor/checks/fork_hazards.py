"""Packages that do not survive a fork once they are in use: threads, connections and handles of their own.

What is merely installed does no harm. Which of them a dataset really imports, and what that leaves open,
`holdfast doctor MODULE:DATASET` says.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.hazards import HAZARDS
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import installed_version

NAME = "fork hazards"
LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Facts:
    installed: tuple[str, ...]
    """Of the packages that are known for them."""
    start_method: str
    has_dataset: bool = False


def look(scope: Scope) -> Facts:
    installed = tuple(hazard.package for hazard in HAZARDS if installed_version(hazard.package) is not None)
    return Facts(installed, scope.start_method, scope.has_dataset)


def judge(facts: Facts) -> list[Finding]:
    if facts.start_method != "fork":
        return [ok(NAME, f"workers are started by {facts.start_method}, and inherit nothing")]
    if not facts.installed:
        return [ok(NAME, "none of the packages known for them is installed")]
    if facts.has_dataset:
        return [ok(NAME, f"installed: {', '.join(facts.installed)}; what the dataset does, 'before fork' says")]
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"installed, and no good across a fork once in use: {', '.join(facts.installed)}",
            evidence=tuple(f"{one.package}: {one.why}" for one in HAZARDS if one.package in facts.installed),
            consequence="a dataset that opens them in __init__ gives wrong data, or its workers hang",
            remedy=("holdfast doctor MODULE:DATASET  # says what yours opens before the fork",),
        )
    ]
