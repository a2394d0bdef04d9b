"""What a check found: how bad it is, what was seen, what comes of it, and what to paste to be rid of it.

Pure. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """The worst first: the order in which findings are shown."""

    PROBLEM = "problem"
    """It would end a loader, or keep it from starting. The command then exits with 1."""
    WARNING = "warning"
    """It may, or makes it slow."""
    NOTE = "note"
    """Worth knowing, or could not be found out."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """All parts are there, but of an OK one only what is so."""

    check: str
    """The name of the check that found it."""
    level: Level
    what: str
    evidence: tuple[str, ...] = ()
    consequence: str = ""
    remedy: tuple[str, ...] = ()
    """Each can be pasted, into a shell or a program, as it stands."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"level": str(self.level), "evidence": [*self.evidence], "remedy": [*self.remedy]}


def ok(check: str, what: str) -> Finding:
    return Finding(check, Level.OK, what)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Those of one level stay in the order of their checks."""
    order = list(Level)
    return sorted(findings, key=lambda finding: order.index(finding.level))


def some_of(lines: Iterable[str], most: int = 5) -> tuple[str, ...]:
    """Evidence that can be read: the first few, and how many more there are."""
    kept = [*lines]
    return (*kept[:most], *([f"and {len(kept) - most} more"] if len(kept) > most else []))
