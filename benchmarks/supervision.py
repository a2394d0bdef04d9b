"""What the supervisor's watch costs: its CPU time, as a share of one core, while it looks after many workers.

The workers load slowly, so that what the supervisor does is watch: with nothing asked for, and with everything that
makes it look more often. The share is of one core over some seconds, read from the clock of the supervisor's process.
Runs in: main.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch.utils.data import Dataset

from holdfast import DataLoader

from .measure import cpu_clock, hang_guard

WORKERS = 16
MOST_SHARE = 0.01
"""Of one core, with everything on."""
ALL = {"sample_timeout": 30, "memory_limit": "4GB", "memory_budget": "80%"}
WATCHES: tuple[tuple[str, Mapping[str, Any]], ...] = (("nothing asked for", {}), (", ".join(ALL), ALL))


@dataclass(frozen=True, slots=True)
class SupervisionResult:
    """One setting."""

    title: str
    workers: int
    share: float
    """Of one core."""


class Slow(Dataset[torch.Tensor]):
    """A sample takes a tenth of a second, and no CPU time."""

    def __len__(self) -> int:
        """Return enough for any window."""
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        """Wait, as for a disk or a network."""
        time.sleep(0.1)
        return torch.tensor(index)


def measure_supervision(window_s: float, tick: Callable[[str], None]) -> list[SupervisionResult]:
    """Measure each setting for so many seconds."""
    results = []
    for title, arguments in WATCHES:
        tick(f"supervision: {title}")
        with hang_guard(), DataLoader(Slow(), 1, num_workers=WORKERS, **arguments) as loader:
            results.append(SupervisionResult(title, WORKERS, _share(iter(loader), window_s)))
    return results


def _share(iterator: Any, window_s: float) -> float:
    """Take batches all the time: what the main process does not take in makes its workers wait."""
    for _ in range(4 * WORKERS):
        next(iterator)
    clock = cpu_clock(psutil.Process(iterator._workers[0].pid).ppid())
    start_s, cpu_s = time.perf_counter(), time.clock_gettime(clock)
    while time.perf_counter() - start_s < window_s:
        next(iterator)
    return (time.clock_gettime(clock) - cpu_s) / (time.perf_counter() - start_s)
