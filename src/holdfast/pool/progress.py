"""A progress bar, where there is somebody to see it: on a terminal, or in a notebook.

It is drawn by who calls `show`, a few times a second at most; there is no thread. Runs in: main process.
"""

from __future__ import annotations

import importlib
import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.words import plural, rate

_EVERY_S = 0.1


class Bar(Protocol):
    """Tells how far it is."""

    def show(self, done: int, failed: int, restarts: int) -> None: ...

    def close(self) -> None: ...


def make_bar(total: int, *, is_wanted: bool) -> Bar:
    """`total`: 0 if nobody knows how many there are."""
    console = Console(stderr=True)
    if is_wanted and console.is_jupyter:
        return NotebookBar(total)
    return TerminalBar(total, console) if is_wanted and console.is_terminal else NoBar()


class NoBar:
    """Nobody looks."""

    def show(self, done: int, failed: int, restarts: int) -> None:
        pass

    def close(self) -> None:
        pass


class Pace:
    """How fast it goes, and whether it is time to say so again."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._shown_s = -1.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now - self._shown_s < _EVERY_S:
            return False
        self._shown_s = now
        return True

    def words(self, done: int, failed: int, restarts: int) -> str:
        """ "12.5/s, 1 failed, 2 restarts"."""
        per_s = done / max(time.monotonic() - self._began_s, 1e-9)
        return f"{rate(per_s)}/s, {failed} failed, {plural(restarts, 'restart')}"


class TerminalBar:
    """By rich, on stderr."""

    def __init__(self, total: int, console: Console) -> None:
        self._pace = Pace()
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, auto_refresh=False)
        self._task = self._progress.add_task("map", total=total or None, said="")
        self._last = (0, 0, 0)

    def show(self, done: int, failed: int, restarts: int) -> None:
        self._last = done, failed, restarts
        if self._pace.is_due():
            self._progress.start()
            self._draw()

    def close(self) -> None:
        if self._progress.live.is_started:
            self._draw()
            self._progress.stop()

    def _draw(self) -> None:
        self._progress.update(self._task, completed=self._last[0], said=self._pace.words(*self._last), refresh=True)


class NotebookBar:
    """An output of the cell, which is changed in place: needs nothing but the notebook."""

    def __init__(self, total: int) -> None:
        self._pace = Pace()
        self._total = total
        self._handle: Any = None
        self._last = (0, 0, 0)

    def show(self, done: int, failed: int, restarts: int) -> None:
        self._last = done, failed, restarts
        if self._pace.is_due():
            self._draw()

    def close(self) -> None:
        self._draw()

    def _draw(self) -> None:
        notebook: Any = importlib.import_module("IPython.display")
        done = self._last[0]
        bar = f"<progress value={done} max={self._total}></progress> " if self._total else ""
        said = f"{done}/{self._total}" if self._total else f"{done}"
        said = f"{said}, {self._pace.words(*self._last)}"
        shown = {"text/html": f"{bar}{said}", "text/plain": said}  # the latter where no page is shown
        if self._handle is None:
            self._handle = notebook.display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
