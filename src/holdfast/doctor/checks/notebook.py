"""Whether this runs in a notebook: Jupyter, Colab, Kaggle.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.doctor.environment import variables
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope

NAME = "notebook"
LIMIT_S = 10.0
_MARKS = {
    "COLAB_RELEASE_TAG": "Google Colab",
    "COLAB_GPU": "Google Colab",
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle",
    "JPY_SESSION_NAME": "Jupyter",
    "JPY_PARENT_PID": "Jupyter",
}
"""Set for the kernel, and so for what it starts, as by `!holdfast doctor`."""


@dataclass(frozen=True, slots=True)
class Facts:
    variables: Mapping[str, str] = field(default_factory=dict)


def look(scope: Scope) -> Facts:
    return Facts(variables(_MARKS))


def judge(facts: Facts) -> list[Finding]:
    mark = next((name for name in _MARKS if name in facts.variables), None)
    if mark is None:
        return [ok(NAME, "this is none")]
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"this runs in {_MARKS[mark]}",
            evidence=(f"{mark} is set",),
            consequence="a dataset defined in a cell is unknown to torch's workers under spawn and forkserver",
            remedy=("from holdfast import DataLoader  # sends what cells define, under every start method",),
        )
    ]
