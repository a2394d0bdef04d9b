"""Where the main thread's time goes: cProfile over steady batches of our loader, per batch.

The profiler itself makes calls dearer: read shares, and take absolute costs from "main µs" of the throughput table.
Runs in: main.
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .consumer import touch
from .loaders import iterating, make_loader
from .measure import drain, hang_guard, warm_up_batches
from .workloads import Workload

LINES = 18


def print_profiles(console: Console, workloads: Sequence[Workload], workers: int, window_s: float) -> None:
    """Print one profile per row."""
    for workload in workloads:
        with hang_guard():
            profile, batches = profile_row(workload, workers, window_s * workload.window)
        console.print(profile_table(f"{workload.title}, {workers} workers", profile, batches))


def profile_row(workload: Workload, workers: int, window_s: float) -> tuple[cProfile.Profile, int]:
    """Profile the main thread over one window; return the profile and the number of batches."""
    loader = make_loader("holdfast", workload, workload.make_dataset(), workers)
    profile = cProfile.Profile()
    with iterating(loader) as iterator:
        for _ in range(warm_up_batches(loader)):
            touch(next(iterator))
        profile.enable()
        batches, _ = drain(iterator, window_s)
        profile.disable()
    return profile, batches


def profile_table(title: str, profile: cProfile.Profile, batches: int) -> Table:
    """Return the dearest functions of a profile, by their own time."""
    table = Table(title=f"Main thread per batch, profiled: {title}, {batches} batches")
    table.add_column("function")
    for column in ("calls per batch", "own µs", "with callees µs"):
        table.add_column(column, justify="right")
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for place, (_, calls, own_s, total_s, _) in sorted(stats.items(), key=lambda item: -item[1][2])[:LINES]:
        figures = (f"{calls / batches:.1f}", f"{1e6 * own_s / batches:.1f}", f"{1e6 * total_s / batches:.1f}")
        table.add_row(_place(*place), *figures)
    return table


def _place(file: str, line: int, function: str) -> str:
    if file == "~":
        return function.replace("[", "\\[")
    path = Path(file)
    return f"{path.parent.name}/{path.name}:{line} {function}"
