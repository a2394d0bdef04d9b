"""What loaders did, added up: of those in this process by what they count, of other processes by their records.

Records are there also of a process that was killed, with the counts of its last reading. Without records, the loaders
of other processes are not counted.

Standard library and records only. Runs in: the script's process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.counted import LOADER
from holdfast.records import reader
from holdfast.records.reader import Run
from holdfast.tasks.runner.settings import Settings

_MOST = 1e18
_COUNTED = ("batches", "samples", "restarts", "recycled", "skipped")


@dataclass(slots=True)
class Figures:
    """Sums over loaders."""

    loaders: int = 0
    in_process: int = 0
    """Those of them without workers. Where torch's own iterator served, they are not counted further."""
    batches: int = 0
    samples: int = 0
    waited_s: float = 0.0
    restarts: int = 0
    recycled: int = 0
    skipped: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    """Incidents by cause."""

    def add(self, num_workers: int, counts: Mapping[str, Any], causes: Mapping[str, int]) -> None:
        """One loader. A count that a record does not have, or has as anything but a number, is none."""
        self.loaders += 1
        self.in_process += num_workers == 0
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + int(_number(counts.get(name))))
        self.waited_s += _number(counts.get("waited_s"))
        self.causes.update({cause: number for cause, number in causes.items() if number > 0})


@dataclass(frozen=True, slots=True)
class Recorded:
    """The records of one `holdfast run`."""

    runs: tuple[Run, ...]
    """Newest first."""

    def add_others(self, figures: Figures, own_pid: int) -> int:
        """Add the loaders of other processes. Of how many processes there are."""
        others = [run for run in self.runs if run.start.get("pid") != own_pid and _is_loader(run)]
        for run in others:
            figures.add(int(_number(run.start.get("num_workers"))), run.last_counts, _causes(run))
        return len({str(run.start.get("pid")) for run in others})

    @property
    def worth_reading(self) -> str | None:
        """The id of the run with the most incidents, and among equals the one that was waited for longest."""
        most = max(self.runs, key=lambda run: (sum(_causes(run).values()), _waited_s(run)), default=None)
        return None if most is None else most.id


def records_of(told: Settings) -> Recorded:
    """Those that belong to this `holdfast run`, and were begun by it or by what it started."""
    found = []
    for run in reader.all_runs():
        if 0 < _number(run.start.get("time")) < told.began - 1:
            break  # they come newest first
        if run.start.get("launch") == told.launch:
            found.append(run)
    return Recorded(tuple(found))


def _is_loader(run: Run) -> bool:
    return bool(run.start.get("front", LOADER) == LOADER)


def _waited_s(run: Run) -> float:
    return _number(run.last_counts.get("waited_s"))


def _causes(run: Run) -> Counter[str]:
    causes = Counter(str(incident.get("cause", "unknown")).split(":")[0] for incident in run.incidents)
    left_out = (run.end or {}).get("incidents_left_out")
    if isinstance(left_out, dict):
        causes.update({str(cause): int(_number(number)) for cause, number in left_out.items()})
    return causes


def _number(value: object) -> float:
    """A record may say anything: what is no sensible number is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _MOST else 0.0  # type: ignore[arg-type, operator]
