"""The live view: what runs on this machine, as rows of text that fit a terminal.

    title                                          always
    a run: which, how fast, who waits for whom     as many runs as fit
      its workers                                  as many rows as are left
      its last incidents                           a few rows are kept for them

Pure: pictures in, rows out. The same rows are drawn by `holdfast top`, by the demo, and into a pipe.

Runs in: wherever records are read.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from rich.text import Text

from holdfast import words
from holdfast.report import live_rows as rows
from holdfast.report import live_workers
from holdfast.report.live_pictures import RunPicture
from holdfast.report.live_rows import Look

_INCIDENTS = 8
_KEPT_FOR_INCIDENTS = 4
"""Rows that workers leave, one of them empty."""
_ENDLESS = 1 << 30


def screen(look: Look, pictures: Sequence[RunPicture], height: int, clock: str, hint: str = "") -> list[Text]:
    """A whole terminal: never more rows than it has. `hint` is said where nothing runs."""
    alive = sum(not one.is_over for one in pictures)
    what = f"{words.plural(alive, 'run')}  {clock}" if alive else f"no loader runs now  {clock}"
    head = [rows.title(look, "holdfast top", what, "q quits"), Text()]
    shown = [*head, *view(look, pictures, height - len(head))]
    if not pictures:
        shown += [look.cut(Text(line)) for part in hint.splitlines() for line in textwrap.wrap(part, look.width)]
    return shown[:height]


def view(look: Look, pictures: Sequence[RunPicture], height: int | None = None) -> list[Text]:
    """The runs, one under the other. `height`: None where there is room for everything, as in a pipe."""
    tops = [_top(look, run) for run in pictures]
    fitting = _how_many_fit(tops, height)
    left = _ENDLESS if height is None else height - sum(len(top) + 1 for top in tops[:fitting]) - (fitting < len(tops))
    shown: list[Text] = []
    for number, run in enumerate(pictures[:fitting]):
        below = _below(look, run, left // (fitting - number))  # what one does not need, the next ones have
        left -= len(below)
        shown += [*tops[number], *below, Text()]
    if fitting < len(tops):
        more = words.plural(len(tops) - fitting, "more run")
        shown.append(look.cut(Text(f"and {more}: 'holdfast top RUN' shows one alone", "dim")))
    return shown if height is None else shown[:height]


def _top(look: Look, run: RunPicture) -> list[Text]:
    counted = run.is_fresh or run.is_over or run.batches > 0  # with num_workers=0 nobody counts
    counts = [rows.counts(look, run)] if counted else []
    return [rows.run_head(look, run), *counts, *rows.waiting(look, run), *rows.after_end(look, run)]


def _how_many_fit(tops: Sequence[Sequence[Text]], height: int | None) -> int:
    """The first run is shown in any case, as far as it goes."""
    needed = list(itertools.accumulate(len(top) + 1 for top in tops))
    if height is None or not needed or needed[-1] <= height:
        return len(tops)
    return max(sum(rows_needed < height for rows_needed in needed), 1)  # one row says how many there are more


def _below(look: Look, run: RunPicture, room: int) -> list[Text]:
    """The workers and the last incidents of a run, in so many rows."""
    happened = run.last_incidents[-_INCIDENTS:]
    kept = min(1 + len(happened), _KEPT_FOR_INCIDENTS) if happened else 0
    shown = live_workers.table(look, run.workers, room - kept, "batch" if run.loads else "call")
    fitting = min(room - len(shown) - 1, len(happened))
    if fitting > 0:
        shown += [Text(), *(rows.incident(look, one) for one in happened[-fitting:])]
    return shown
