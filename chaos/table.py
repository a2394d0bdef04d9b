"""A report on the terminal.

Runs in: main.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .gaps import Spread, spread
from .report import AIM_S, SHORT_S, Line, Report
from .training import Outcome

PIPE_WIDTH = 150


def make_console(*, to_stderr: bool) -> Console:
    """A console that is wide enough when its output is not a terminal."""
    console = Console(stderr=to_stderr)
    return console if console.is_terminal else Console(stderr=to_stderr, width=PIPE_WIDTH)


def print_outcome(console: Console, outcome: Outcome) -> None:
    """One line per scenario, as soon as it is over, and all about a failure."""
    scenario = outcome.scenario
    mark = "ok" if outcome.failure is None else "[red]FAILED[/red]"
    console.print(
        f"{mark} {scenario.method} {scenario.number}: {len(outcome.kills)} kills, {outcome.batches} batches in"
        f" {outcome.passes} passes, {outcome.wall_s:.1f} s; {describe(outcome)}",
        highlight=False,
        soft_wrap=True,
    )
    if outcome.failure is not None:
        console.print(Text(f"{outcome.failure.rstrip()}\n{scenario}\nagain: {scenario.command}"), soft_wrap=True)


def describe(outcome: Outcome) -> str:
    """A scenario in a few words."""
    scenario, spec = outcome.scenario, outcome.scenario.spec
    words = [
        scenario.kind,
        f"batch {scenario.batch_size} x {spec.nbytes} B",
        f"unit {1e3 * outcome.unit_s:.1f} ms",
        f"{scenario.num_workers} workers x {scenario.prefetch_factor}",
        f"{len(scenario.leave_after)} epochs",
    ]
    words.append("storm" if scenario.is_storm else "one at a time")
    if scenario.persistent:
        words.append("persistent")
    if spec.draws:
        words.append(f"draws {'+'.join(spec.draws)}")
    if scenario.collate != "default":
        words.append(f"{scenario.collate} collate")
    return ", ".join(words)


def print_report(console: Console, report: Report) -> None:
    """The table, the aim, and the failures once more, at the end where they are seen."""
    console.print(kills_table(report.lines()))
    batches = sum(outcome.batches for outcome in report.outcomes)
    console.print(f"{batches} batches of {len(report.outcomes)} scenarios compared with torch's")
    aim = report.aim()
    if aim is not None:
        word = "[green]met[/green]" if aim[1] else "[red]missed[/red]"
        console.print(
            f"aim {word}: a worker killed under fork, p95 above its unit {1e3 * aim[0]:.0f} ms,"
            f" aim under {1e3 * AIM_S:.0f} ms"
        )
    if (short := report.above_short_units()) is not None:
        console.print(f"where a unit takes under {1e3 * SHORT_S:.0f} ms: {_figures(short)} ms above it")
    for outcome in report.failures:
        first = (outcome.failure or "").strip().splitlines()[0]
        console.print("[red]failed[/red]", Text(f"{first} ({outcome.scenario.command})"))


def kills_table(lines: list[Line]) -> Table:
    """Kills survived and gaps in milliseconds."""
    table = Table(title="Kills survived, and the gap per kill that the training loop sees: median / p95 / worst, ms")
    table.add_column("method")
    table.add_column("killed")
    titles = ("survived", "not", "measured", "gap", "the lost unit", "gap above it", "intervals without kills")
    for title in titles:
        table.add_column(title, justify="right")
    for line in lines:
        figures = map(_figures, (line.gap, line.unit, line.above, spread(line.calm)))
        counts = (str(line.survived), str(line.not_survived or ""), str(len(line.gaps)))
        table.add_row(line.method, line.sort, *counts, *figures)
    return table


def _figures(found: Spread | None) -> str:
    if found is None:
        return ""
    return " / ".join(_ms(value) for value in (found.median, found.p95, found.worst))


def _ms(seconds: float) -> str:
    ms = 1e3 * seconds
    return f"{ms:.1f}" if abs(ms) < 10 else f"{ms:.0f}"
