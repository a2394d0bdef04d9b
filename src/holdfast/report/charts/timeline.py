"""The workers' timeline: a row per worker, a bar per process, a mark per incident.

    worker 0  ████████◆│█████████████████████
    worker 1  ██████████████■│███████◆│██████

Marks that would cover each other are drawn as one, with their number; bars that would not be seen apart, too. So the
chart has a bounded number of parts, whatever the run was like.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import words
from holdfast.report import families
from holdfast.report.charts.scale import Scale, Tick, time_ticks
from holdfast.report.lives import Life, Mark, Timeline, Worker

WIDTH, LEFT, RIGHT, TOP, ROW, AXIS = 960, 92, 18, 6, 36, 28
BAR = 16
_APART = 9  # marks nearer to each other are one
_LEAST = 1.5  # bars narrower than that are joined
_GAP = 2.0

SHAPES = {
    families.CRASH: "M0-7 7 0 0 7-7 0z",
    families.KILLED: "M-6-4-4-6 0-2 4-6 6-4 2 0 6 4 4 6 0 2-4 6-6 4-2 0z",
    families.HANG: "M-5.5-5.5h11v11h-11z",
    families.MEMORY: "M0-6.5 6.5 5.5h-13z",
    families.EXCEPTION: "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0z",
    families.OTHER: "M-3.5-6h7l3.5 6-3.5 6h-7l-3.5-6z",
}
"""Around 0, 0. Families differ in shape, not in colour alone."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Of one process, or of several that are too short to be seen apart."""

    x: float
    width: float
    title: str
    ended: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Of one incident, or of several at one place."""

    x: float
    shape: str
    family: str
    group: int
    count: int
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """Of one worker."""

    y: float
    label: str
    bars: tuple[Bar, ...]
    signs: tuple[Sign, ...]


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """All of it."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    legend: tuple[tuple[str, str, str], ...]
    """Family, shape, title: of those that occur."""


def timeline_chart(timeline: Timeline, noun: str = "worker") -> TimelineChart:
    scale = Scale(timeline.duration_s, LEFT, WIDTH - RIGHT)
    rows = tuple(_row(number, worker, scale, noun) for number, worker in enumerate(timeline.workers))
    seen = {sign.family for row in rows for sign in row.signs}
    bottom = TOP + ROW * len(rows)
    return TimelineChart(
        width=WIDTH,
        height=bottom + AXIS,
        left=LEFT,
        right=WIDTH - RIGHT,
        bottom=bottom,
        rows=rows,
        ticks=time_ticks(scale),
        legend=tuple((name, SHAPES[name], title) for name, title in families.TITLES.items() if name in seen),
    )


def _row(number: int, worker: Worker, scale: Scale, noun: str) -> Row:
    label = "no worker" if worker.worker_id is None else f"{noun} {worker.worker_id}"
    return Row(
        y=TOP + ROW * number + ROW / 2 + 3,  # there is more above a bar than below: the numbers of its signs
        label=label,
        bars=tuple(_bars(worker.lives, scale)),
        signs=tuple(_signs(worker.marks, scale)),
    )


def _bars(lives: tuple[Life, ...], scale: Scale) -> list[Bar]:
    """Short ones are joined until they can be seen; a long one has its own."""
    bars: list[Bar] = []
    short: list[Life] = []
    for life in lives:
        is_long = scale(life.to_s) - scale(life.from_s) >= _LEAST
        if short and (is_long or scale(life.to_s) - scale(short[0].from_s) >= _LEAST):
            bars.append(_bar(short, scale))
            short = []
        if is_long:
            bars.append(_bar([life], scale))
        else:
            short.append(life)
    return [*bars, _bar(short, scale)] if short else bars


def _bar(lives: list[Life], scale: Scale) -> Bar:
    first, last = lives[0], lives[-1]
    x = scale(first.from_s)
    alone = "process" if first.pid is None else f"pid {first.pid}"
    title = f"{len(lives)} processes" if len(lives) > 1 else alone
    ended = "died" if any(life.ended == "died" for life in lives) else last.ended
    until = f"{words.duration(first.from_s)} to {words.duration(last.to_s)}"
    width = max(scale(last.to_s) - x - (_GAP if ended else 0), 0.5)
    return Bar(x, round(width, 1), f"{title}, {until}{f', {ended}' if ended else ''}", ended)


def _signs(marks: tuple[Mark, ...], scale: Scale) -> list[Sign]:
    """Those of one family at one place are one."""
    places: dict[tuple[int, str], list[Mark]] = {}
    for mark in marks:
        places.setdefault((int(scale(mark.at_s) / _APART), mark.family), []).append(mark)
    return [_sign(family, marks, scale) for (_, family), marks in places.items()]


def _sign(family: str, marks: list[Mark], scale: Scale) -> Sign:
    first = marks[0]
    more = f", and {len(marks) - 1} more" if len(marks) > 1 else ""
    title = f"{words.duration(first.at_s)}: {first.words}{more}"
    return Sign(scale(first.at_s), SHAPES[family], family, first.group, len(marks), title)
