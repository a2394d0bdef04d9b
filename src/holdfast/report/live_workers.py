"""The workers of a run in the live view: a table whose columns fit the width, or one row that sums them up.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from holdfast import words
from holdfast.report.live_pictures import WorkerPicture
from holdfast.report.live_rows import INDENT, Look, rate_words

_LONG_S = 5.0
"""What a worker has been at for so long is pointed out."""
_NEARLY = 0.85
"""Of a limit: so much is pointed out too."""
_BAR_CELLS = 6
_LIMITED, _UNLIMITED = 21, 9
"""Cells for the memory of a worker, with and without a bar."""
_SMALLEST_TABLE = 3


def table(look: Look, workers: Sequence[WorkerPicture], room: int, unit: str = "batch") -> list[Text]:
    """A head and a row each; where there are too many for so many rows, the last row says what the others do.

    `unit`: what a worker is given at once.
    """
    if not workers or room < 1:
        return []
    if room < min(_SMALLEST_TABLE, 1 + len(workers)):
        return [_summed_up(look, workers, "workers" if len(workers) > 1 else "worker")]
    columns = _Columns(look, workers, unit)
    rows = [columns.head(), *map(columns.worker, workers)]
    return rows if len(rows) <= room else [*rows[: room - 1], _summed_up(look, workers[room - 2 :], "more")]


class _Columns:
    """Which ones there are, and how wide: the same for all rows."""

    def __init__(self, look: Look, workers: Sequence[WorkerPicture], unit: str) -> None:
        self._look = look
        self._unit = unit
        self._number, self._since, self._restarts = (2, 7, 0) if look.is_narrow else (6, 8, 9)
        has_rates = not look.is_narrow and any(one.batches_per_s is not None for one in workers)
        self._rate = 8 if has_rates else 0
        has_bars = not look.is_narrow and any(one.memory_share is not None for one in workers)
        self._memory = _LIMITED if has_bars else _UNLIMITED
        others = len(INDENT) + self._number + 2 + self._since + self._rate + 2 + self._memory + self._restarts
        self._doing = max(look.width - others, 6)

    def head(self) -> Text:
        named = "#" if self._look.is_narrow else "worker"
        row = self._row(named, Text("doing"), "for", "rate", Text("memory"), restarts=Text("restarts"))
        row.stylize("dim")
        return row

    def worker(self, one: WorkerPicture) -> Text:
        doing = Text(self._words(one), "yellow" if _is_long(one) else "dim" if _is_idle(one) else "")
        since = "" if one.since_s is None else _since(one.since_s)
        restarts = Text(f"{one.restarts:,}" if one.restarts else "", "yellow")
        rate = "" if one.batches_per_s is None else f"{rate_words(one.batches_per_s)}/s"
        return self._row(str(one.worker_id), doing, since, rate, _memory(self._look, one), restarts=restarts)

    def _words(self, one: WorkerPicture) -> str:
        if one.sample is not None:
            return f"{one.doing} {one.sample}" if self._look.is_narrow else f"{one.doing} sample {one.sample}"
        return one.doing if one.batch is None else f"{one.doing} {self._unit} {one.batch}"

    def _row(self, number: str, doing: Text, since: str, rate: str, memory: Text, *, restarts: Text) -> Text:
        doing.truncate(self._doing, overflow="ellipsis", pad=True)
        memory.truncate(self._memory, overflow="ellipsis", pad=True)
        timing = f"{since:>{self._since}}" + (f"{rate:>{self._rate}}" if self._rate else "")
        row = Text.assemble(INDENT, f"{number:>{self._number}}", "  ", doing, timing, "  ", memory)
        if self._restarts:
            row = Text.assemble(row, " " * (self._restarts - restarts.cell_len), restarts)
        return self._look.cut(row)


def _summed_up(look: Look, workers: Sequence[WorkerPicture], noun: str) -> Text:
    """ "12 more: 11 loading, 1 waiting for work; worker 7 for 12 s"."""
    kinds = Counter(one.doing for one in workers)
    said = ", ".join(f"{number} {doing}" for doing, number in kinds.most_common())
    row = Text(f"{INDENT}{len(workers)} {noun}: {said}", "dim")
    slowest = max((one for one in workers if _is_long(one)), key=lambda one: one.since_s or 0.0, default=None)
    if slowest is not None:
        row.append(f"; worker {slowest.worker_id} for {words.duration(slowest.since_s or 0.0)}", "yellow")
    return look.cut(row)


def _is_idle(one: WorkerPicture) -> bool:
    return one.doing.startswith("waiting")


def _is_long(one: WorkerPicture) -> bool:
    return one.since_s is not None and one.since_s >= _LONG_S and not _is_idle(one)


def _since(seconds: float) -> str:
    """Milliseconds are different at every look, and tell nothing: a row that stays the same is calm."""
    return "<0.1 s" if seconds < 0.1 else f"{seconds:.1f} s" if seconds < 10 else words.duration(seconds)


def _memory(look: Look, one: WorkerPicture) -> Text:
    if one.memory_bytes is None:
        return Text("")
    share = one.memory_share
    if share is None or one.limit_bytes is None:
        return Text(words.size(one.memory_bytes))
    is_near = share >= _NEARLY
    if look.is_narrow:
        return Text(words.size(one.memory_bytes), "red" if is_near else "")
    bar = look.bar(share, _BAR_CELLS, "red" if is_near else "green")
    return bar.append(f" {_of_limit(one.memory_bytes, one.limit_bytes)}", "red" if is_near else "")


def _of_limit(nbytes: int, limit_bytes: int) -> str:
    """Both in the unit that the limit was given in: "3.9 of 4 GB", "153 of 343 MiB"."""
    number, _, unit = words.limit(limit_bytes).partition(" ")
    scaled = nbytes * float(number) / limit_bytes
    return f"{_short(scaled)} of {_short(float(number)).removesuffix('.0')} {unit}"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"
