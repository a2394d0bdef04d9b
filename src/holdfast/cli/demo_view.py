"""Our epoch while it runs, as `holdfast top` shows it: on a terminal, and nowhere else.

Invariant: the thread that draws begins when the workers are there. A process that is forked while another thread holds
a lock has that lock for ever.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.cli.watch import Watch
from holdfast.records import live
from holdfast.report.live import view
from holdfast.report.live_rows import Look

if TYPE_CHECKING:
    from holdfast.demo.outcomes import Outcome

_PER_S = 8
_BAR_CELLS = 24


class EpochView:
    """What is drawn, again and again. Without a record, only how far the epoch is."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._watch: Watch | None = None
        self._batches = 0
        self._live = Live(
            console=console, get_renderable=self._rows, refresh_per_second=_PER_S, transient=True, redirect_stdout=False
        )

    def begin(self) -> None:
        """The workers are there."""
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            own = next((run for run in live.running() if run.start.get("pid") == os.getpid()), None)
            self._watch = None if own is None else Watch(own)
            self._live.start(refresh=True)

    def count(self, epoch: Outcome) -> None:
        """A batch came."""
        self._batches = epoch.batches

    def end(self) -> None:
        self._live.stop()

    def _rows(self) -> RenderableType:
        width, height = self._console.size
        look = Look(width, self._console.options.ascii_only)
        bar = look.bar(self._batches / self._total, min(_BAR_CELLS, width // 4), "green")
        head = Text.assemble(("holdfast", "bold"), "  ", bar, f"  batch {self._batches} of {self._total}")
        pictures = [] if self._watch is None else self._watch.look()
        return Group(look.cut(head), Text(), *view(look, pictures, height - 3))


@contextlib.contextmanager
def shown(console: Console, total: int) -> Iterator[EpochView]:
    """A view that is gone at the end of the block."""
    epoch = EpochView(console, total)
    try:
        yield epoch
    finally:
        epoch.end()
