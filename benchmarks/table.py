"""A report as tables on the terminal.

Runs in: main.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .graph_tables import graph_table
from .loaders import LOADERS
from .measure import RowResult
from .memory import MemoryResult
from .option_costs import SETTINGS, OptionResult, Setting, cpu_ms, rate
from .pool_tables import pool_table
from .report import (
    Report,
    Target,
    memory_target,
    option_cpu_target,
    option_rate_target,
    row_target,
    startup_target,
    supervision_target,
)
from .sharing_tables import sharing_table
from .startup import StartupResult
from .supervision import SupervisionResult

MIB = 2**20
PIPE_WIDTH = 120
NOISE_CORES = 0.1


def make_console() -> Console:
    """Return a console that is wide enough for the tables when its output is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def print_report(console: Console, report: Report) -> None:
    """Print the tables of what was measured, the missed targets and what broke."""
    console.print(f"{report.machine}; load before the run {report.machine.load:.2f}; {report.rounds} rounds")
    if report.rows:
        console.print(throughput_table(report.rows))
        for row in report.rows:
            note = f" ({row.workload.note})" if row.workload.note else ""
            console.print(f"[bold]{row.workload.name}[/bold] {row.workload.title}{note}", highlight=False)
        _warn_of_neighbours(console, report.rows)
        console.print(cpu_table(report.rows))
    if report.options:
        console.print(options_table(report.options))
        for setting in SETTINGS:
            console.print(f"[bold]{setting.name}[/bold] {setting.title}", highlight=False)
        _warn_of_neighbours(console, report.options)
    if report.startup:
        console.print(startup_table(report.startup))
    if report.memory:
        console.print(memory_table(report.memory))
    if report.supervision:
        console.print(supervision_table(report.supervision))
    if report.sharing is not None:
        console.print(sharing_table(report.sharing))
    if report.graph is not None:
        console.print(graph_table(report.graph))
    if report.pool is not None:
        console.print(pool_table(report.pool))
    _print_outcome(console, report)


def _warn_of_neighbours(console: Console, rows: Sequence[RowResult | OptionResult]) -> None:
    """Say which rows were measured beside other work: their figures are not to be trusted."""
    for row in rows:
        if row.others_cores() > NOISE_CORES:
            busy = f"{row.others_cores():.2f} cores were busy with other work"
            console.print(f"[yellow]noisy[/yellow] {row.workload.name}: {busy} (median of its passes)")


def _print_outcome(console: Console, report: Report) -> None:
    missed, total = report.missed(), len(report.targets())
    console.print(f"[bold]{total - len(missed)} of {total} targets met.[/bold]")
    for target in missed:
        console.print(f"[red]missed[/red] {target}")
    for failure in report.broken:
        console.print("[red]broken[/red]", Text(failure))


def throughput_table(rows: list[RowResult]) -> Table:
    """Batches per second, one line per row and number of workers."""
    table = Table(title="Batches per second (ratio: median, and least to greatest, of the rounds' ratios)")
    table.add_column("work", no_wrap=True)
    for title in ("workers", "in-process", "torch", "holdfast", "ratio", "spread", "target", "", "ceiling", "of it"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for workers in row.worker_counts():
            table.add_row(row.workload.name, *_throughput_cells(row, workers))
        table.add_section()
    return table


def _throughput_cells(row: RowResult, workers: int) -> list[str]:
    target, ratios = row_target(row, workers), row.ratios(workers)
    ours, ceiling = row.rate("holdfast", workers), row.rate("ceiling")
    return [
        str(workers),
        number(row.rate("in-process")),
        number(row.rate("torch", workers)),
        number(ours),
        f"{target.value:.2f}",
        f"{min(ratios):.2f}-{max(ratios):.2f}",
        f"{target.limit:g}",
        mark(target),
        number(ceiling),
        f"{100 * ours / ceiling:.0f}%",
    ]


def cpu_table(rows: list[RowResult]) -> Table:
    """CPU time per batch, user and system, of all processes and of the main one."""
    table = Table(title="CPU time per batch: all processes, and the main process alone with its consumer")
    table.add_column("work", no_wrap=True)
    for title in ("workers", "torch ms", "holdfast ms", "ratio", "main, torch µs", "main, holdfast µs"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for workers in row.worker_counts():
            table.add_row(row.workload.name, *_cpu_cells(row, workers))
        table.add_section()
    return table


def _cpu_cells(row: RowResult, workers: int) -> list[str]:
    stock, ours = (row.median(name, workers, lambda one: one.cpu_ms) for name in LOADERS)
    main = (row.median(name, workers, lambda one: one.main_cpu_us) for name in LOADERS)
    return [str(workers), f"{stock:.2f}", f"{ours:.2f}", f"{ours / stock:.2f}", *(f"{value:.0f}" for value in main)]


def options_table(rows: list[OptionResult]) -> Table:
    """What our options cost, one line per row and setting."""
    table = Table(title="Our loader with an option over the same without it, 2 workers")
    for title in ("work", "option"):
        table.add_column(title, no_wrap=True)
    for title in (
        "CPU ms",
        "with it",
        "ratio",
        "most",
        "",
        "µs/sample",
        "batches/s",
        "with it",
        "ratio",
        "least",
        "",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for setting in SETTINGS:
            table.add_row(row.workload.name, setting.name, *_option_cells(row, setting))
        table.add_section()
    return table


def _option_cells(row: OptionResult, setting: Setting) -> list[str]:
    cpu, fast = option_cpu_target(row, setting), option_rate_target(row, setting)
    return [
        *(f"{row.median(name, cpu_ms):.3f}" for name in (setting.against, setting.name)),
        *_against(cpu, setting.most_cpu is not None),
        f"{row.sample_us(setting.name):+.2f}",
        *(number(row.median(name, rate)) for name in (setting.against, setting.name)),
        *_against(fast, setting.most_cpu is not None),
    ]


def _against(target: Target, counts: bool) -> tuple[str, str, str]:
    """Return the figure, its limit and whether it was met; the figure alone where there is no target."""
    return f"{target.value:.2f}", f"{target.limit:.2f}" if counts else "", mark(target) if counts else ""


def startup_table(cases: list[StartupResult]) -> Table:
    """First batch, one line per start method and number of workers."""
    table = Table(title="First batch in a fresh process, seconds")
    titles = ("method", "workers", "torch", "holdfast", "ratio", "target at most", "", "floor (import torch)")
    for title in (*titles, "next epoch: torch", "holdfast", "ratio"):
        table.add_column(title, justify="left" if title == "method" else "right")
    for case in cases:
        target = startup_target(case)
        times = [f"{case.time_s(name):.3f}" for name in LOADERS]
        floor = "" if case.floor is None else f"{case.floor:.2f}"
        figures = [f"{target.value:.2f}", f"{target.limit:g}", mark(target), floor]
        later = [*(f"{case.later_time_s(name):.3f}" for name in LOADERS), f"{case.later_ratio:.2f}"]
        table.add_row(case.method, str(case.workers), *times, *figures, *later)
    return table


def memory_table(cases: list[MemoryResult]) -> Table:
    """Unique memory, one line per start method and row."""
    table = Table(title="Unique memory (USS) in mid-epoch, 2 workers, MiB")
    for title in ("method", "work"):
        table.add_column(title)
    for title in (
        "torch's worker",
        "our worker",
        "ratio",
        "target at most",
        "",
        "torch's fork server",
        "our supervisor",
    ):
        table.add_column(title, justify="right")
    for case in cases:
        target = memory_target(case)
        workers = [f"{case.worker_bytes[name] / MIB:.1f}" for name in LOADERS]
        parents = [_parent(case.parent_bytes[name]) for name in LOADERS]
        ratio = (f"{target.value:.2f}", f"{target.limit:g}", mark(target))
        table.add_row(case.method, case.row, *workers, *ratio, *parents)
    return table


def supervision_table(cases: list[SupervisionResult]) -> Table:
    """The supervisor's CPU time, one line per setting."""
    table = Table(title="CPU time of the supervisor, in percent of one core")
    for title in ("workers", "with", "percent", "most", ""):
        table.add_column(title)
    for case in cases:
        target = supervision_target(case)
        figures = (f"{100 * target.value:.2f}", f"{100 * target.limit:g}", mark(target))
        table.add_row(str(case.workers), case.title, *figures)
    return table


def _parent(value: float) -> str:
    return f"{value / MIB:.1f}" if value else "-"


def mark(target: Target) -> str:
    """Return "met" or "missed", coloured."""
    return "[green]met[/green]" if target.met else "[red]missed[/red]"


def number(value: float) -> str:
    """Return a rate with three digits or more."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
