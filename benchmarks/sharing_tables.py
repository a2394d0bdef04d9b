"""What share() saves and costs, as tables for the terminal and for the README.

Runs in: main.
"""

from __future__ import annotations

from statistics import median

from rich.table import Table

from .report import Target, sharing_targets
from .sharing import SharingResult

MB = 1e6


def rows(result: SharingResult) -> list[tuple[str, str, str]]:
    """Return what was measured, the figure, and what it is to be compared with."""
    return [*_added_rows(result), *_string_rows(result), *_look_rows(result), *_start_rows(result)]


def _added_rows(result: SharingResult) -> list[tuple[str, str, str]]:
    what = "1 GB array shared by 4 workers: added to each"
    return [
        (f"{what}, {method}", f"{median(added) / MB:.1f} MB", "1000 MB of data")
        for method, added in result.added_bytes.items()
    ]


def _string_rows(result: SharingResult) -> list[tuple[str, str, str]]:
    what = "5 million strings, all looked at: unique memory of each of 4 workers"
    return [
        (f"{what}; {name}", f"{median(used) / MB:.0f} MB", f"{result.string_ratio(name):.2f} of torch's, plain")
        for name, used in result.string_bytes.items()
    ]


def _look_rows(result: SharingResult) -> list[tuple[str, str, str]]:
    return [
        (
            f"one item of a shared list of {kind}",
            f"{median(times['shared']) * 1e9:.0f} ns",
            f"plain {median(times['plain']) * 1e9:.0f} ns: {result.look_ratio(kind):.1f}",
        )
        for kind, times in result.look_s.items()
    ]


def _start_rows(result: SharingResult) -> list[tuple[str, str, str]]:
    what = "first batch of each of 4 spawned workers with 1 GB"
    return [
        (f"{what}; {name}", f"{median(times):.2f} s", f"{result.start_ratio(name):.2f} of ours, pickled")
        for name, times in result.start_s.items()
    ]


def sharing_table(result: SharingResult) -> Table:
    """Everything, and which targets were met."""
    table = Table(title="share(): memory, reading, starting")
    for title in ("", "median", "against"):
        table.add_column(title, justify="left" if not title else "right")
    for row in rows(result):
        table.add_row(*row)
    table.add_section()
    for target in sharing_targets(result):
        table.add_row(str(target), "", _mark(target))
    return table


def sharing_markdown(result: SharingResult) -> str:
    """The same for the README."""
    lines = ["| `holdfast.share` | median | against |", "|---|---:|---:|"]
    return "\n".join([*lines, *(f"| {what} | {figure} | {against} |" for what, figure, against in rows(result))])


def _mark(target: Target) -> str:
    return "[green]met[/green]" if target.met else "[red]missed[/red]"
