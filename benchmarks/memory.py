"""Unique memory per worker in mid-epoch, ours against torch's, and what the workers' parent holds itself.

The parent is our supervisor, or the standard library's fork server; with torch's fork and spawn the main process.
Runs in: main; each measurement is `worker_memory.py` in an interpreter of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .loaders import LOADERS
from .probes import run_probe

TARGET = 1.0
"""Most of torch's unique memory that a worker of ours may have."""
CASES = (("fork", "floats"), ("fork", "images-f32"), ("spawn", "floats"), ("forkserver", "floats"))
QUICK_CASES = CASES[:2]
WORKERS = 2


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """Unique memory of both loaders in one case, in bytes."""

    method: str
    row: str
    worker_bytes: dict[str, float]
    parent_bytes: dict[str, float]

    @property
    def ratio(self) -> float:
        """Ours over torch's, per worker."""
        return self.worker_bytes["holdfast"] / self.worker_bytes["torch"]


def measure_memory(cases: Sequence[tuple[str, str]], tick: Callable[[str], None]) -> list[MemoryResult]:
    """Measure all cases."""
    return [_measure_case(method, row, tick) for method, row in cases]


def _measure_case(method: str, row: str, tick: Callable[[str], None]) -> MemoryResult:
    readings = {}
    for name in LOADERS:
        tick(f"memory: {name} {method} {row}")
        readings[name] = run_probe("worker_memory", name, method, str(WORKERS), "--row", row)
    return MemoryResult(
        method,
        row,
        {name: reading["worker_bytes"] for name, reading in readings.items()},
        {name: reading["parent_bytes"] for name, reading in readings.items()},
    )
