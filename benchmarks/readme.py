"""Writes the table of the run just made between two markers of the README.

Runs in: main.
"""

from __future__ import annotations

from pathlib import Path

from .graph_tables import graph_markdown
from .measure import RowResult
from .option_costs import SETTINGS, OptionResult
from .pool_tables import pool_markdown
from .report import Report
from .sharing_tables import sharing_markdown
from .table import MIB, number

START = "<!-- bench:start -->"
END = "<!-- bench:end -->"


def has_markers(path: Path) -> bool:
    """Whether the file has both markers, in order: asked before a long run."""
    return path.is_file() and END in path.read_text().partition(START)[2]


def rewrite_readme(path: Path, report: Report) -> None:
    """Replace what is between the markers."""
    before, start, rest = path.read_text().partition(START)
    _, end, after = rest.partition(END)
    path.write_text(f"{before}{start}\n{markdown(report)}\n{end}{after}")


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    parts = [f"`make bench` on {report.machine}; medians of {report.rounds} rounds, all loaders in turn."]
    if report.rows:
        parts.append(_throughput(report.rows))
    if report.options:
        parts.append(_options(report.options))
    if report.startup:
        parts.append(_startup(report))
    if report.memory:
        parts.append(_memory(report))
    if report.supervision:
        parts.append(_supervision(report))
    if report.sharing is not None:
        parts.append(sharing_markdown(report.sharing))
    if report.graph is not None:
        parts.append(graph_markdown(report.graph))
    if report.pool is not None:
        parts.append(pool_markdown(report.pool))
    return "\n\n".join(parts)


def _throughput(rows: list[RowResult]) -> str:
    counts = rows[0].worker_counts()
    shown = 2 if 2 in counts else counts[-1]
    ratios = f"ratio with {' / '.join(map(str, counts))} workers"
    lines = [
        f"| batches per second, {shown} workers | torch | holdfast | {ratios} | in-process | ceiling |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row.rate("torch", shown), row.rate("holdfast", shown), row.rate("in-process"), row.rate("ceiling")]
        stock, ours, alone, ceiling = (number(value) for value in cells)
        ratio = " / ".join(f"{row.ratio(workers):.1f}" for workers in counts)
        lines.append(f"| {row.workload.title} | {stock} | {ours} | {ratio} | {alone} | {ceiling} |")
    notes = [f"{row.workload.title}: {row.workload.note}." for row in rows if row.workload.note]
    legend = "In-process is `num_workers=0`; the ceiling is a bare collate into one warm buffer on every core."
    return "\n".join([*lines, "", " ".join([legend, *notes])])


def _options(rows: list[OptionResult]) -> str:
    """The first column of figures is the one that is promised, the others are what it comes to."""
    titles = " | ".join(f"`{setting.title}`: CPU per batch | batches per second" for setting in SETTINGS)
    lines = [f"| with it, over without it, 2 workers | {titles} |", f"|---|{2 * len(SETTINGS) * '---:|'}"]
    for row in rows:
        pairs = ((row.cpu_ratio(setting.name), row.rate_ratio(setting.name)) for setting in SETTINGS)
        cells = " | ".join(f"{cpu:.2f} | {rate:.2f}" for cpu, rate in pairs)
        lines.append(f"| {row.workload.title} | {cells} |")
    noise = max(row.noise for row in rows)
    legend = "CPU time is that of all processes together, user and system."
    return "\n".join(
        [
            *lines,
            "",
            f"{legend} The same loader, measured twice, differed by up to {noise:.0%} in batches per second.",
        ]
    )


def _startup(report: Report) -> str:
    lines = [
        "| first batch, seconds | workers | torch | holdfast | ratio | floor | next epoch: torch | holdfast | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for case in report.startup:
        times = f"{case.time_s('torch'):.2f} | {case.time_s('holdfast'):.2f}"
        floor = "" if case.floor is None else f"{case.floor:.2f}"
        later = f"{case.later_time_s('torch'):.2f} | {case.later_time_s('holdfast'):.2f} | {case.later_ratio:.2f}"
        lines.append(f"| {case.method} | {case.workers} | {times} | {case.ratio:.2f} | {floor} | {later} |")
    legend = "The floor is one new interpreter that imports torch, over torch's first batch."
    return "\n".join([*lines, "", legend])


def _memory(report: Report) -> str:
    lines = ["| unique memory per worker, MiB | torch | holdfast | ratio |", "|---|---:|---:|---:|"]
    for case in report.memory:
        stock, ours = (f"{case.worker_bytes[name] / MIB:.1f}" for name in ("torch", "holdfast"))
        lines.append(f"| {case.method}, {case.row} | {stock} | {ours} | {case.ratio:.2f} |")
    return "\n".join(lines)


def _supervision(report: Report) -> str:
    shares = ", ".join(f"{100 * case.share:.2f}% with {case.title}" for case in report.supervision)
    return f"CPU time of the supervisor of {report.supervision[0].workers} workers, of one core: {shares}."
