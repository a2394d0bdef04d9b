"""The workers of a run over time: when each lived, what happened to it, when it was replaced.

A record of this version has a line for each start and end of a worker. An older one has none: then a worker lives from
the start to the end of the run, and changes hands where an incident says which process was lost.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from holdfast.records.reader import Run
from holdfast.report import entries, families
from holdfast.report.entries import Entry
from holdfast.report.incidents import group_numbers
from holdfast.report.span import Span

MOST_ROWS = 24
"""Of more workers those with incidents go first."""
_MOST_WORKERS = 4096


@dataclass(frozen=True, slots=True)
class Life:
    """Of one process."""

    from_s: float
    to_s: float
    pid: int | None
    ended: str
    """"died", "recycled", "done"; empty: it lived on, or it is not known."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One incident."""

    at_s: float
    family: str
    group: int
    words: str


@dataclass(frozen=True, slots=True)
class Worker:
    """All processes that had one worker's place. `worker_id` is None for what is no worker: the supervisor."""

    worker_id: int | None
    lives: tuple[Life, ...]
    marks: tuple[Mark, ...]

    @property
    def restarts(self) -> int:
        return sum(life.ended == "died" for life in self.lives)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows of a chart."""

    duration_s: float
    workers: tuple[Worker, ...]
    workers_not_shown: int
    """None of them has more incidents than those that are."""


def timeline_of(run: Run, span: Span) -> Timeline:
    marks = _marks(run, span)
    lives = _recorded(run, span) or _guessed(run, span)
    everybody = sorted(lives.keys() | marks.keys(), key=lambda worker: (worker is None, worker or 0))
    chosen = set(sorted(everybody, key=lambda worker: -len(marks.get(worker, ())))[:MOST_ROWS])
    workers = tuple(
        Worker(worker, tuple(lives.get(worker, ())), tuple(marks.get(worker, ())))
        for worker in everybody
        if worker in chosen
    )
    return Timeline(span.duration_s, workers, len(everybody) - len(workers))


def _marks(run: Run, span: Span) -> dict[int | None, list[Mark]]:
    marks: dict[int | None, list[Mark]] = defaultdict(list)
    for line, group in zip(run.incidents, group_numbers(run), strict=True):
        family = families.family_of(entries.text(line, "cause"))
        at_s = span.at_s(entries.number(line, "time"))
        marks[_worker_id(line)].append(Mark(at_s, family, group, _words(line)))
    return marks


def _words(line: Entry) -> str:
    sample = entries.index(line.get("sample_index"))
    said = entries.text(line, "summary", 120) or entries.text(line, "cause", 120)
    return f"{said}{f', sample {sample}' if sample else ''}"


def _recorded(run: Run, span: Span) -> dict[int | None, list[Life]]:
    """From the lines on workers. A start ends what was there before, should its own line be missing."""
    lives: dict[int | None, list[Life]] = defaultdict(list)
    open_since: dict[int | None, tuple[float, int | None]] = {}
    for line in run.workers:
        worker, at_s = _worker_id(line), span.at_s(entries.number(line, "time"))
        before = open_since.pop(worker, None)
        if before is not None:
            why = entries.text(line, "why", 40) if line.get("event") == "ended" else ""
            lives[worker].append(Life(before[0], at_s, before[1], why))
        if line.get("event") == "started":
            open_since[worker] = (at_s, entries.whole(line, "pid"))
    for worker, (since_s, pid) in open_since.items():
        lives[worker].append(Life(since_s, span.duration_s, pid, ""))
    return lives


def _guessed(run: Run, span: Span) -> dict[int | None, list[Life]]:
    """From the number of workers, and the incidents that name a process that was lost."""
    known = min(entries.count(run.start, "num_workers"), _MOST_WORKERS)
    ends: dict[int, list[tuple[float, int]]] = {worker: [] for worker in range(known)}
    for line in run.incidents:
        worker, pid = _worker_id(line), entries.whole(line, "pid")
        if worker is not None and pid is not None and entries.text(line, "cause") not in families.GROWTH:
            ends.setdefault(worker, []).append((span.at_s(entries.number(line, "time")), pid))
    lives: dict[int | None, list[Life]] = {}
    for worker, losses in ends.items():
        since_s = 0.0
        lives[worker] = []
        for at_s, pid in sorted(losses):
            lives[worker].append(Life(since_s, at_s, pid, "died"))
            since_s = at_s
        lives[worker].append(Life(since_s, span.duration_s, None, ""))
    return lives


def _worker_id(line: Entry) -> int | None:
    worker = entries.whole(line, "worker_id")
    return None if worker is None or worker < 0 else worker
