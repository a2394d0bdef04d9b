"""What share() saves and costs, as tables for the terminal and for the README.

Runs in: main.
"""

from __future__ import annotations

from statistics import median

from rich.table import Table

from .report import Target, sharing_targets
from .sharing import SharingResult

MB = 1e6
Row = tuple[str, str, str]


def rows(result: SharingResult) -> list[Row]:
    """Return what was measured, the figure, and what it is to be compared with."""
    return [*_added_rows(result), *_string_rows(result), *_look_rows(result), *_start_rows(result)]


def _added_rows(result: SharingResult) -> list[Row]:
    return [
        (f"1 GB array, memory added to each of 4 workers, {method}", f"{added / MB:.1f} MB", "")
        for method, added in result.added_bytes.items()
    ]


def _string_rows(result: SharingResult) -> list[Row]:
    return [
        (
            f"5 million strings, memory of each of 4 workers: {name}",
            f"{used / MB:.0f} MB",
            f"{result.string_ratio(name):.2f} of torch, plain",
        )
        for name, used in result.string_bytes.items()
    ]


def _look_rows(result: SharingResult) -> list[Row]:
    return [
        (
            f"one of a million {kind} in a shared list",
            f"{median(times['shared']) * 1e9:.0f} ns",
            f"{result.look_ratio(kind):.1f} of {median(times['plain']) * 1e9:.0f} ns, plain",
        )
        for kind, times in result.look_s.items()
    ]


def _start_rows(result: SharingResult) -> list[Row]:
    return [
        (
            f"4 spawned workers with 1 GB, until each gave a batch: {name}",
            f"{median(times):.2f} s",
            f"{result.start_ratio(name):.2f} of ours, pickled",
        )
        for name, times in result.start_s.items()
    ]


def sharing_table(result: SharingResult) -> Table:
    """Everything, and which targets were met."""
    table = Table(title="share(): memory, reading, starting")
    for title in ("", "figure", "ratio"):
        table.add_column(title, justify="left" if not title else "right")
    for row in rows(result):
        table.add_row(*row)
    table.add_section()
    for target in sharing_targets(result):
        table.add_row(str(target), "", _mark(target))
    return table


def sharing_markdown(result: SharingResult) -> str:
    """The same for the README."""
    lines = ["| `holdfast.share` | | ratio |", "|---|---:|---:|"]
    lines += [f"| {what} | {figure} | {against} |" for what, figure, against in rows(result)]
    legend = "Memory is unique memory (USS), after every worker has looked at all of the data; strings under fork."
    return "\n".join([*lines, "", legend])


def _mark(target: Target) -> str:
    return "[green]met[/green]" if target.met else "[red]missed[/red]"
