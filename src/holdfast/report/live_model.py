"""What the live view shows of a run, worked out from looks at it: rates, who waits for whom, memory, what is new.

    live.look ──► Looks: those of the last seconds ──► RunPicture ──► live.py (a terminal) | to_json (a script)

Every text in a picture is clean: a script's name, an index or an exception's words are anybody's.

Pure: the clock is the caller's. Runs in: wherever records are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.counted import LOADER
from holdfast.records.live import LiveRun, LiveWorker
from holdfast.report import clean, entries
from holdfast.report.live_pictures import (
    DIED,
    ENDED,
    RUNNING,
    IncidentPicture,
    RunPicture,
    WorkerPicture,
)
from holdfast.report.nouns import front_of, nouns_of
from holdfast.report.waiting import waiting

WINDOW_S = 10.0
"""Rates and waits are of these last seconds: long enough to be calm, short enough to see a change."""
_MOST_INCIDENTS = 50
_LONGEST_NAME = 60


class Looks:
    """The looks at one run, of the last seconds, and one that is a little older than those."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._looks: deque[LiveRun] = deque()

    def add(self, look: LiveRun) -> None:
        if self._looks:
            last = self._looks[-1]
            look = look if look.is_fresh else _not_behind(look, last)
            if look.is_fresh != last.is_fresh or look.at_s < last.at_s:  # the clock was set back, or an epoch ended:
                self._looks.clear()  # what was before says nothing of how fast it goes now
            elif look.at_s == last.at_s:  # the same reading of the record again
                self._looks.pop()
        self._looks.append(look)
        while len(self._looks) > 2 and look.at_s - self._looks[1].at_s >= self._window_s:
            self._looks.popleft()

    def picture(self, now: float) -> RunPicture:
        """`now` is the time of day. Needs one look at least; two for rates."""
        return make_picture(self._looks, now)


def _not_behind(look: LiveRun, before: LiveRun) -> LiveRun:
    """What the record said last may be older than what was seen before: of a process that died, that is the newest."""
    names = ("batches", "samples", "waited_s", "restarts", "skipped")
    return replace(look, **{name: max(getattr(look, name), getattr(before, name)) for name in names})


def make_picture(looks: Sequence[LiveRun], now: float) -> RunPicture:
    """The run as it is at the last of these looks, with rates since the first of them."""
    older, newer = looks[0], looks[-1]
    run, start = newer.run, newer.run.start
    state = RUNNING if run.is_alive else DIED if run.end is None else ENDED
    counts = {name: getattr(newer, name) for name in ("batches", "samples", "skipped", "restarts")}
    if run.end is not None:
        counts = {name: entries.count(run.end, name) or count for name, count in counts.items()}
    age_s = _age_s(start, run.end, state, now)
    return RunPicture(
        id=run.id,
        script=entries.text(start, "script", _LONGEST_NAME),
        dataset=entries.text(start, "dataset", _LONGEST_NAME) or entries.text(start, "function", _LONGEST_NAME),
        front=front_of(start),
        rank=entries.whole(start, "rank"),
        pid=entries.whole(start, "pid"),
        state=state,
        age_s=age_s,
        is_fresh=newer.is_fresh,
        **counts,
        batches_per_s=_per_s(older, newer, "batches") if state == RUNNING else None,
        samples_per_s=_per_s(older, newer, "samples") if state == RUNNING else None,
        waiting=waiting(older, newer, age_s, trains=nouns_of(start).trains),
        # (Those of a record are of its last reading: they may be gone.)
        workers=_workers(looks) if state == RUNNING and newer.is_fresh else (),
        incidents=_count_incidents(run.incidents, run.end),
        last_incidents=tuple(_incident(run.id, line) for line in run.incidents[-_MOST_INCIDENTS:]),
    )


def _age_s(start: Mapping[str, Any], end: Mapping[str, Any] | None, state: str, now: float) -> float | None:
    began = entries.number(start, "time")
    until = now if state == RUNNING else entries.number(end or {}, "time")
    return None if began is None or until is None else max(until - began, 0.0)


def _per_s(older: LiveRun, newer: LiveRun, name: str) -> float | None:
    passed_s, more = newer.at_s - older.at_s, getattr(newer, name) - getattr(older, name)
    return more / passed_s if passed_s > 0 and more >= 0 else None


def _workers(looks: Sequence[LiveRun]) -> tuple[WorkerPicture, ...]:
    newer = looks[-1]
    loads = front_of(newer.run.start) == LOADER
    return tuple(_worker(one, _worker_rate(looks, one.worker_id) if loads else None, loads) for one in newer.workers)


def _worker(worker: LiveWorker, batches_per_s: float | None, loads: bool) -> WorkerPicture:
    is_call = worker.doing == "loading" and not loads
    return WorkerPicture(
        worker_id=worker.worker_id,
        pid=worker.pid,
        doing="running" if is_call else clean.line(worker.doing, _LONGEST_NAME),
        sample=_index(worker.sample),
        batch=worker.batch,
        since_s=worker.since_s,
        batches_per_s=batches_per_s,
        memory_bytes=worker.memory_bytes,
        limit_bytes=worker.limit_bytes,
        restarts=worker.restarts,
    )


def _worker_rate(looks: Sequence[LiveRun], worker_id: int) -> float | None:
    """From the batches that it had in hand: as in torch it is given every n-th one. None: nothing in hand was seen."""
    seen: list[tuple[float, int]] = []
    for look in looks:
        batch = next((one.batch for one in look.workers if one.worker_id == worker_id), None)
        if batch is not None and seen and batch < seen[-1][1]:
            seen.clear()  # another epoch has begun
        if batch is not None:
            seen.append((look.at_s, batch))
    if not seen or looks[-1].at_s <= seen[0][0]:
        return None
    return (seen[-1][1] - seen[0][1]) / len(looks[-1].workers) / (looks[-1].at_s - seen[0][0])


def _count_incidents(kept: Sequence[Mapping[str, Any]], end: Mapping[str, Any] | None) -> int:
    """All of them: where there were more than are kept, their numbers say so, or the end does."""
    numbers = [entries.whole(line, "number") or 0 for line in kept[-1:]]
    return max(len(kept), entries.whole(end or {}, "incidents") or 0, *numbers, 0)


def _incident(run_id: str, line: Mapping[str, Any]) -> IncidentPicture:
    number = entries.whole(line, "number")
    return IncidentPicture(
        id=f"{run_id}.{number}" if number is not None else run_id,
        time=entries.number(line, "time"),
        worker_id=entries.whole(line, "worker_id"),
        sample=_index(line.get("sample_index")),
        done=entries.text(line, "done", _LONGEST_NAME),
        summary=entries.text(line, "summary") or entries.text(line, "cause") or "something went wrong",
    )


def _index(index: object) -> int | str | None:
    """A number stays one: a script may want it."""
    if isinstance(index, int) and not isinstance(index, bool):
        return index
    return entries.index(index) or None
