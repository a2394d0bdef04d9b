"""The progress of `holdfast tune`: what is being measured, and how much of the time is left. On a terminal only.

It is drawn between two batches, some times a second, and never by a thread: a process forked while a thread prints
might wait for ever for a lock of that thread, and drawing takes time of what is measured.

Runs in: main process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from holdfast.words import plural, rate

if TYPE_CHECKING:
    from holdfast.tasks.tune.watched import Weighed

_EVERY_S = 0.25
_NARROW = 60


class TuneProgress:
    """A bar over all the time there is."""

    def __init__(self, talk: Console, seconds: float) -> None:
        columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False)]
        if talk.width >= _NARROW:
            columns.insert(0, BarColumn(bar_width=20))
        self._bar = Progress(
            *columns,
            console=talk,
            auto_refresh=False,
            transient=True,
            disable=not talk.is_terminal,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("starting a worker", total=seconds)
        self._start = self._drawn_at = time.monotonic()
        self._words = ""

    def __enter__(self) -> Self:
        self._bar.start()
        self._bar.refresh()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def sampled(self, weighed: Sequence[Weighed]) -> None:
        self._say(f"samples: {len(weighed):,}")

    def measured(self, num_workers: int, batches_per_s: float | None) -> None:
        pace = "" if batches_per_s is None else f": {rate(batches_per_s)} batches/s"
        words = f"{plural(num_workers, 'worker')}{pace}"
        self._say(words, at_once=words != self._words)
        self._words = words

    def _say(self, words: str, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._drawn_at >= _EVERY_S:
            self._drawn_at = now
            self._bar.update(self._task, description=words, completed=now - self._start, refresh=True)
