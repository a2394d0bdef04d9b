"""Where the main thread's time goes: cProfile over steady batches of our loader, per batch.

Two windows are profiled, one by the thread's CPU clock, one by the wall clock: a function that has much wall time and
little CPU time waits, or was pushed off its core. The profiler makes calls dearer, by CPU clock most of all: read
shares here, and take absolute costs from the CPU table of a plain run.
Runs in: main.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .consumer import touch
from .loaders import iterating, make_loader
from .measure import drain, hang_guard, warm_up_batches
from .workloads import Workload

LINES = 20
Place = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class Costs:
    """What one function cost per batch: calls, its own time and the time with what it called, in microseconds."""

    calls: float
    own_us: float
    total_us: float


def print_profiles(console: Console, workloads: Sequence[Workload], workers: int, window_s: float) -> None:
    """Print one profile per row."""
    for workload in workloads:
        with hang_guard():
            cpu, wall = profile_row(workload, workers, window_s * workload.window)
        console.print(profile_table(f"{workload.title}, {workers} workers", cpu, wall))


def profile_row(workload: Workload, workers: int, window_s: float) -> tuple[dict[Place, Costs], dict[Place, Costs]]:
    """Profile the main thread over two windows; return the costs by CPU time and by wall time."""
    loader = make_loader("holdfast", workload, workload.make_dataset(), workers)
    with iterating(loader) as iterator:
        for _ in range(warm_up_batches(loader)):
            touch(next(iterator))
        cpu = _profile(iterator, window_s, cProfile.Profile(time.thread_time))
        wall = _profile(iterator, window_s, cProfile.Profile())
        return cpu, wall


def _profile(iterator: Iterator[Any], window_s: float, profile: cProfile.Profile) -> dict[Place, Costs]:
    profile.enable()
    batches, _ = drain(iterator, window_s)
    profile.disable()
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return {
        place: Costs(calls / batches, 1e6 * own_s / batches, 1e6 * total_s / batches)
        for place, (_, calls, own_s, total_s, _) in stats.items()
    }


def profile_table(title: str, cpu: dict[Place, Costs], wall: dict[Place, Costs]) -> Table:
    """Return the dearest functions of a profile, by their own CPU time."""
    table = Table(title=f"Main thread per batch, profiled: {title}")
    table.add_column("function")
    for column in ("calls", "own CPU µs", "with callees", "own wall µs", "with callees"):
        table.add_column(column, justify="right")
    nothing = Costs(0.0, 0.0, 0.0)
    for place, costs in sorted(cpu.items(), key=lambda item: -item[1].own_us)[:LINES]:
        waited = wall.get(place, nothing)
        figures = (costs.calls, costs.own_us, costs.total_us, waited.own_us, waited.total_us)
        table.add_row(_place(*place), *(f"{figure:.1f}" for figure in figures))
    return table


def _place(file: str, line: int, function: str) -> str:
    if file == "~":
        return function.replace("[", "\\[")
    path = Path(file)
    return f"{path.parent.name}/{path.name}:{line} {function}"
