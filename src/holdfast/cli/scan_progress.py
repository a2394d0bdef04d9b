"""The progress bar of `holdfast scan`: how many, how fast, how long yet, how many of them bad.

Only on a terminal, and narrow on a narrow one. Its thread runs only while workers run that were started before it: a
process forked while a thread prints might wait for ever for a lock of that thread.

Runs in: main process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.tasks.scan.findings import Findings

_NARROW = 70


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


class ScanProgress:
    """`total` is None where nobody knows it. `watcher` of the scan."""

    def __init__(self, talk: Console, total: int | None, done: int) -> None:
        bad = TextColumn("[red]{task.fields[bad]}[/red]")
        left = TimeElapsedColumn() if total is None else TimeRemainingColumn(compact=True)
        columns: list[ProgressColumn] = [MofNCompleteColumn(), _RateColumn(), left, bad]
        if talk.width >= _NARROW:
            columns.insert(0, BarColumn())
        # The user's own output is not caught: his workers would inherit what catches it, and its locks.
        self._bar = Progress(
            *columns,
            console=talk,
            transient=True,
            disable=not talk.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID = self._bar.add_task("", total=total, completed=done, bad="")

    def started(self) -> None:
        self._bar.start()

    def moved(self, findings: Findings) -> None:
        bad = f"{len(findings.bad):,} bad" if findings.bad else ""
        self._bar.update(self._task, completed=findings.done, bad=bad)

    def ended(self) -> None:
        self._bar.stop()
