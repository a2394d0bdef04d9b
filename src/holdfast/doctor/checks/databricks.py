"""Whether this runs on Databricks.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast import options
from holdfast.doctor.environment import variables
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope

NAME = "Databricks"
LIMIT_S = 10.0
_VERSION = "DATABRICKS_RUNTIME_VERSION"


@dataclass(frozen=True, slots=True)
class Facts:
    variables: Mapping[str, str] = field(default_factory=dict)


def look(scope: Scope) -> Facts:
    return Facts(variables((_VERSION, options.HOME)))


def judge(facts: Facts) -> list[Finding]:
    version = facts.variables.get(_VERSION)
    if version is None:
        return [ok(NAME, "this is not Databricks")]
    if options.HOME in facts.variables:
        return [ok(NAME, f"runtime {version}; records of runs are kept in {facts.variables[options.HOME]}")]
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"this runs on Databricks, runtime {version}",
            evidence=(f"{_VERSION}={version}",),
            consequence="the driver's disk goes with the cluster, and the records of runs with it",
            remedy=(
                "import os; os.environ['HOLDFAST_HOME'] = '/Volumes/main/default/holdfast'  # before the first loader",
            ),
        )
    ]
