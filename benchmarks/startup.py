"""First batch: how long `iter(loader)` and the first `next()` take in a fresh process, by start method and workers.

The same is taken in the next epoch of that process: under spawn and forkserver, what is imported once need not be
imported again. It has no target.

Beside spawn and forkserver stands the floor: one new interpreter that imports torch. No worker that is not a fork of
the main process can be there sooner, and torch's loader needs as much for its workers together where cores are free.

Runs in: main; each measurement is `first_batch.py` in an interpreter of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median

from .loaders import LOADERS
from .probes import LIMIT_S, run_probe

METHODS = ("fork", "spawn", "forkserver")
FORK_REPEATS = 2
"""Under fork a measurement is short and noisy: it is repeated this many times more often."""


@dataclass(frozen=True, slots=True)
class StartupResult:
    """First-batch times of both loaders in one case, in the order of rounds."""

    method: str
    workers: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LOADERS})
    later_seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LOADERS})
    """The first batch of the second epoch, in the same process."""
    import_seconds: list[float] = field(default_factory=list)

    @property
    def target(self) -> float:
        """Most of torch's time that ours may take."""
        if self.method == "fork":
            return 1.5
        return 0.65 if self.workers < 4 else 0.4

    def time_s(self, loader: str) -> float:
        """Return the median time of a loader."""
        return median(self.seconds[loader])

    @property
    def floor(self) -> float | None:
        """One interpreter's import of torch over torch's first batch, within a round: what cannot be undercut."""
        pairs = zip(self.import_seconds, self.seconds["torch"], strict=True)
        return median(bare / stock for bare, stock in pairs) if self.import_seconds else None

    @property
    def ratio(self) -> float:
        """Ours over torch's: median over rounds of ratios within a round."""
        return _ratio(self.seconds)

    def later_time_s(self, loader: str) -> float:
        """Return the median time of a loader in the second epoch."""
        return median(self.later_seconds[loader])

    @property
    def later_ratio(self) -> float:
        """Ours over torch's in the second epoch: median over rounds of ratios within a round."""
        return _ratio(self.later_seconds)


def _ratio(seconds: dict[str, list[float]]) -> float:
    pairs = zip(seconds["holdfast"], seconds["torch"], strict=True)
    return median(ours / stock for ours, stock in pairs)


def measure_startup(
    methods: Sequence[str], worker_counts: Sequence[int], rounds: int, tick: Callable[[str], None]
) -> list[StartupResult]:
    """Measure all cases, loaders in turn, after one unmeasured run of each that warms the disk cache."""
    results = [StartupResult(method, workers) for method, workers in product(methods, worker_counts)]
    for name in LOADERS:
        tick(f"first batch, warm-up: {name}")
        run_probe("first_batch", name, "fork", "2")
    for number in range(rounds):
        for case in results:
            for _ in range(FORK_REPEATS if case.method == "fork" else 1):
                _measure_pair(case, number, rounds, tick)
    return results


def time_of_import() -> float:
    """Seconds from starting a new interpreter until it has imported torch and ended."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch, os; os._exit(0)"], check=True, timeout=LIMIT_S)
    return time.perf_counter() - start


def _measure_pair(case: StartupResult, number: int, rounds: int, tick: Callable[[str], None]) -> None:
    for name in LOADERS if number % 2 == 0 else reversed(LOADERS):
        tick(f"first batch, round {number + 1} of {rounds}: {name} {case.method} {case.workers}")
        times = run_probe("first_batch", name, case.method, str(case.workers))
        case.seconds[name].append(times["first_batch_s"])
        case.later_seconds[name].append(times["later_batch_s"])
    if case.method != "fork":
        tick(f"first batch, round {number + 1} of {rounds}: import torch alone")
        case.import_seconds.append(time_of_import())
