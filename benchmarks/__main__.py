"""`python -m benchmarks`: measure, print, and keep the table of the README.

Exit status: 0 when everything could be measured (a missed target is printed), 1 when something broke, or when a target
is missed under --strict; 2 for wrong usage.
Runs in: main.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.status import Status

from .graph import measure_graph
from .machine import machine_facts
from .measure import measure_row
from .memory import CASES, QUICK_CASES, measure_memory
from .option_costs import measure_options
from .pool import measure_pool
from .profiling import print_profiles
from .readme import END, START, has_markers, rewrite_readme
from .report import Report, as_json
from .sharing import measure_sharing
from .startup import METHODS, measure_startup
from .supervision import measure_supervision
from .table import make_console, print_report
from .workloads import WORKLOADS

ROUNDS, QUICK_ROUNDS = 5, 3
WINDOW_S, QUICK_WINDOW_S = 0.7, 0.4
STARTUP_ROUNDS, QUICK_STARTUP_ROUNDS = 3, 1
STARTUP_WORKERS = (2, 4)
Tick = Callable[[str], None]
SUPERVISION_S, QUICK_SUPERVISION_S = 10.0, 4.0
SHARING_ROUNDS, QUICK_SHARING_ROUNDS = 3, 1
GRAPH_ROUNDS, QUICK_GRAPH_ROUNDS = 7, 3
POOL_START_ROUNDS, QUICK_POOL_START_ROUNDS = 3, 1
PARTS = ("throughput", "options", "startup", "memory", "supervision", "sharing", "pool", "graph")


def main() -> int:
    """Run what was asked for; return the exit status. Records are kept, as by default, but not among the user's."""
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        os.environ["HOLDFAST_HOME"] = home
        return measure(options)


def measure(options: argparse.Namespace) -> int:
    """Measure, print, write; return the exit status."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    console = make_console()
    if options.profile:
        workers = 2 if 2 in options.workers else options.workers[0]
        print_profiles(console, [WORKLOADS[name] for name in options.rows], workers, options.window)
        return 0
    report = run(options, console)
    print_report(console, report)
    if options.json:
        options.json.write_text(json.dumps(as_json(report), indent=1) + "\n")
    if options.readme and not report.broken:
        rewrite_readme(options.readme_file, report)
    return 1 if report.broken or (options.strict and report.missed()) else 0


def parse_options() -> argparse.Namespace:
    """Read the command line, and fill in what depends on --quick."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--rows", type=_rows, default=list(WORKLOADS), metavar="NAME,...", help=", ".join(WORKLOADS))
    parser.add_argument("--workers", type=_numbers, default=[1, 2, 4], metavar="N,...", help="default 1,2,4")
    parser.add_argument("--only", type=_parts, default=list(PARTS), metavar="PART,...", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}, {QUICK_ROUNDS} with --quick")
    parser.add_argument("--window", type=float, metavar="SECONDS", help="length of one measured pass")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--readme", action="store_true", help="put the table of this run into README.md")
    parser.add_argument("--readme-file", type=Path, default=Path("README.md"), help=argparse.SUPPRESS)
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--profile", action="store_true", help="profile our main thread instead, row by row")
    options = parser.parse_args()
    if options.readme and (options.rows != list(WORKLOADS) or options.only != list(PARTS)):
        parser.error("--readme needs a whole run, without --rows and --only")
    if options.readme and not has_markers(options.readme_file):
        parser.error(f"--readme needs {START} and {END} in {options.readme_file}")
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.window = options.window or (QUICK_WINDOW_S if options.quick else WINDOW_S)
    return options


def _rows(text: str) -> list[str]:
    return _known(text, WORKLOADS)


def _parts(text: str) -> list[str]:
    return _known(text, PARTS)


def _known(text: str, names: Container[str]) -> list[str]:
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
    return chosen


def _numbers(text: str) -> list[int]:
    numbers = [int(number) for number in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("workers are counted from 1; in-process loading is always measured")
    return numbers


def run(options: argparse.Namespace, console: Console) -> Report:
    """Measure the parts that were asked for; a part that fails is noted, and the others go on."""
    report = Report(machine_facts(), options.rounds)
    with console.status("starting") as status:
        for what, part in parts(options, report, _ticker(console, status)):
            try:
                part()
            except Exception:
                report.broken.append(f"{what}: {traceback.format_exc()}")
    return report


def parts(options: argparse.Namespace, report: Report, tick: Tick) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what to measure: a name, and a function that adds its results to the report."""

    def measure_one_row(name: str) -> None:
        report.rows.append(measure_row(WORKLOADS[name], options.workers, options.rounds, options.window, tick))

    def measure_one_rows_options(name: str) -> None:
        report.options.extend(measure_options([WORKLOADS[name]], options.rounds, options.window, tick))

    def measure_first_batches() -> None:
        rounds = QUICK_STARTUP_ROUNDS if options.quick else STARTUP_ROUNDS
        report.startup.extend(measure_startup(METHODS, STARTUP_WORKERS, rounds, tick))

    def measure_workers() -> None:
        report.memory.extend(measure_memory(QUICK_CASES if options.quick else CASES, tick))

    def measure_supervisor() -> None:
        window_s = QUICK_SUPERVISION_S if options.quick else SUPERVISION_S
        report.supervision.extend(measure_supervision(window_s, tick))

    def measure_share() -> None:
        rounds = QUICK_SHARING_ROUNDS if options.quick else SHARING_ROUNDS
        report.sharing = measure_sharing(options.quick, rounds, tick)

    def measure_neighbours() -> None:
        rounds = QUICK_GRAPH_ROUNDS if options.quick else GRAPH_ROUNDS
        report.graph = measure_graph(options.quick, rounds, tick)

    def measure_pools() -> None:
        rounds = QUICK_POOL_START_ROUNDS if options.quick else POOL_START_ROUNDS
        report.pool = measure_pool(options.rounds, options.window, rounds, tick)

    if "throughput" in options.only:
        for name in options.rows:
            yield name, partial(measure_one_row, name)
    if "options" in options.only:
        for name in options.rows:
            yield f"options, {name}", partial(measure_one_rows_options, name)
    if "startup" in options.only:
        yield "first batch", measure_first_batches
    if "memory" in options.only:
        yield "memory", measure_workers
    if "supervision" in options.only:
        yield "supervision", measure_supervisor
    if "sharing" in options.only:
        yield "sharing", measure_share
    if "graph" in options.only:
        yield "graph", measure_neighbours
    if "pool" in options.only:
        yield "pool", measure_pools


def _ticker(console: Console, status: Status) -> Tick:
    """Show progress on a terminal; elsewhere stay silent."""
    return status.update if console.is_terminal else lambda text: None


if __name__ == "__main__":
    sys.exit(main())
