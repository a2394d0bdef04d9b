"""Neighbour sampling, as tables for the terminal and for the README.

Runs in: main.
"""

from __future__ import annotations

from statistics import median

from rich.table import Table

from .graph import GraphResult
from .report import graph_targets

Row = tuple[str, str, str]


def rows(result: GraphResult) -> list[Row]:
    """Return what was measured, the figure, and ours over it."""
    measured = [
        (
            f"{name}, one process, batches per CPU second",
            f"{median(rates):.0f}",
            f"{result.ratio_to(name):.1f}x" if name != "ours" else "",
        )
        for name, rates in result.one_process.items()
    ]
    if result.no_dgl:
        measured.append(("DGL 1.1.3", "absent", result.no_dgl.splitlines()[0][:60]))
    measured += [(f"NeighborLoader, {name}, batches per second", f"{median(r):.0f}", "") for name, r in _loader(result)]
    measured.append(("2 workers over one process", "", f"{result.worker_ratio():.2f}x"))
    return measured + [
        (f"memory added to each worker, {method}", f"{added / 1e6:.1f} MB", "")
        for method, added in result.added_bytes.items()
    ]


def _loader(result: GraphResult) -> list[tuple[str, list[float]]]:
    return list(result.loader.items())


def graph_table(result: GraphResult) -> Table:
    """Everything, and which targets were met."""
    table = Table(title="neighbour sampling: 1M nodes, 20M edges, fanout [15, 10], batch 1024")
    for title in ("", "figure", "ours over it"):
        table.add_column(title, justify="left" if not title else "right")
    for row in rows(result):
        table.add_row(*row)
    table.add_section()
    for target in graph_targets(result):
        table.add_row(str(target), "", "[green]met[/green]" if target.met else "[red]missed[/red]")
    return table


def graph_markdown(result: GraphResult) -> str:
    """The same for the README."""
    lines = [
        "| neighbour sampling: 1M nodes, 20M edges, fanout [15, 10], batch 1024 | | ours over it |",
        "|---|---:|---:|",
    ]
    lines += [f"| {what} | {figure} | {against} |" for what, figure, against in rows(result)]
    return "\n".join(lines)
