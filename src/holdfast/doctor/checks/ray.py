"""Whether this runs under Ray, whose own limits end workers as well.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.doctor.environment import variables
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import installed_version

NAME = "Ray"
LIMIT_S = 10.0
_MARKS = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_ADDRESS")
_THRESHOLD = "RAY_memory_usage_threshold"


@dataclass(frozen=True, slots=True)
class Facts:
    version: str | None = None
    """Of the ray that is installed; None: none is."""
    variables: Mapping[str, str] = field(default_factory=dict)


def look(scope: Scope) -> Facts:
    return Facts(installed_version("ray"), variables((*_MARKS, _THRESHOLD)))


def judge(facts: Facts) -> list[Finding]:
    mark = next((name for name in _MARKS if name in facts.variables), None)
    if mark is None:
        return [
            ok(NAME, "not installed" if facts.version is None else f"{facts.version} is installed, and not in use here")
        ]
    share = facts.variables.get(_THRESHOLD, "0.95, its default")
    return [
        Finding(
            NAME,
            Level.NOTE,
            "this runs under Ray, which ends tasks when the memory of the node is nearly used up",
            evidence=(f"{mark}={facts.variables[mark]}", f"{_THRESHOLD} is {share}"),
            consequence="a task with all its workers is ended; and ray.train rebuilds a loader as torch's own",
            remedy=(
                'DataLoader(..., memory_budget="60%")  # stay below what Ray allows',
                "loader = holdfast.DataLoader(...)  # and no prepare_data_loader, or it is torch's again",
            ),
        )
    ]
