"""Runs the checks, each within its time: one that fails or does not end is a note, and the others go on.

A check that does not end is left behind in its thread, which does not keep the process from ending.
Runs in: main process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holdfast.diagnosis.wording import error_line
from holdfast.doctor.checks import (
    container,
    cpu_and_threads,
    cpu_level,
    databricks,
    descriptors,
    fork_hazards,
    gpu,
    instructions,
    library_machine,
    memory,
    notebook,
    pinned_memory,
    processes,
    python,
    ray,
    shared_memory,
    swap,
    torch_and_driver,
)
from holdfast.doctor.finding import Finding, Level
from holdfast.doctor.scope import Scope
from holdfast.words import seconds


class Check(Protocol):
    """What a module in `checks` has."""

    NAME: str
    LIMIT_S: float
    """Past it the check is given up."""

    def look(self, scope: Scope) -> Any:
        """Read what there is to read. May raise."""

    def judge(self, facts: Any) -> list[Finding]:
        """What that means. Pure; never empty."""


OF_LIBRARIES: tuple[Check, ...] = (library_machine, cpu_level, instructions)
"""They look at what a dataset has loaded as well, once it has."""

OF_MACHINE: tuple[Check, ...] = (
    memory,
    swap,
    shared_memory,
    descriptors,
    processes,
    python,
    torch_and_driver,
    gpu,
    pinned_memory,
    cpu_and_threads,
    fork_hazards,
    notebook,
    databricks,
    container,
    ray,
)

ALL = (*OF_LIBRARIES, *OF_MACHINE)


def examine(
    scope: Scope, checks: Iterable[Check] = ALL, on_check: Callable[[str], object] = lambda name: None
) -> list[Finding]:
    """The findings of all checks, in their order. `on_check` is told the name of each before it runs."""
    findings: list[Finding] = []
    for check in checks:
        on_check(check.NAME)
        findings.extend(_findings_of(check, scope))
    return findings


def _findings_of(check: Check, scope: Scope) -> list[Finding]:
    done: list[list[Finding]] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            done.append(check.judge(check.look(scope)))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"doctor: {check.NAME}", daemon=True)
    thread.start()
    thread.join(check.LIMIT_S)
    if done:
        return done[0]
    why = error_line(errors[0]) if errors else f"it had not ended after {seconds(check.LIMIT_S)}"
    return [
        Finding(
            check.NAME,
            Level.NOTE,
            "this could not be checked",
            evidence=(why,),
            consequence="what it looks for may be there, or not; the other checks are not affected",
            remedy=("holdfast doctor --json  # please report it with this, if it happens again",),
        )
    ]
