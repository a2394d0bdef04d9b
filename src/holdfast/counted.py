"""What this process's loaders, pools and groups of ranks have counted so far, for who wants to sum it up.

    loader, pool, spawn ──► count(owner, front, counters)    once for each; they go on counting for themselves
    their workers       ──► employ(front, handles)           weakly: who is there now
    what went wrong     ──► note(front, incident)
                                        └──► read() ──► Totals of each front      (`metrics`, in any thread)

- Nothing is paid per batch: what is counted is looked at when somebody reads.
- Totals never go back: what an owner had counted is kept when he is gone.
- A forked child begins with nothing: what its parent counted is its parent's.

Standard library only. Runs in: main process, in any thread.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.incident import Incident

LOADER, POOL, MAP, SPAWN = "DataLoader", "ProcessPoolExecutor", "holdfast.map", "holdfast.spawn"
FRONTS = (LOADER, POOL, MAP, SPAWN)
"""What users call what has the workers."""

COUNTS = ("batches", "samples", "waited_s", "restarts", "supervisor_restarts", "recycled", "skipped")
"""Attributes of an owner's counters; one that he does not have is 0."""
STAGES = ("fetch_s", "collate_s", "send_s")
"""The same, of what their `stages()` gives."""

Counts = dict[str, float]
"""By such a name."""

_MOST_CAUSES = 100
_OTHERS = "others"


class Handle(Protocol):
    """As much of a worker as is needed here."""

    def living_pid(self) -> int | None: ...


@dataclass(slots=True)
class Totals:
    """Of one front: of all its owners, also those that are gone."""

    counts: Counts = field(default_factory=lambda: dict.fromkeys((*COUNTS, *STAGES), 0))
    incidents: Counter[str] = field(default_factory=Counter)  # by their cause
    last_incident: float | None = None  # seconds since the epoch
    worker_pids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Account:
    """One owner: alive as long as his reference is."""

    owner: weakref.ref[object]
    front: str
    counters: object
    before: Counts  # what a copy, or a loader that came from another process, had counted elsewhere
    seen: Counts  # the last time: a loader that is adding up in its own thread may show less for a moment

    def add_to(self, totals: Totals) -> None:
        for name, value in _read(self.counters).items():
            self.seen[name] = max(value, self.seen[name])
            totals.counts[name] += self.seen[name] - self.before[name]


def _none() -> defaultdict[str, Totals]:
    return defaultdict(Totals, {front: Totals() for front in FRONTS})


class _Register:
    """All there is to sum up in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal handler may make a loader while its thread holds it
        self.accounts: list[_Account] = []
        self.gone = _none()
        self.workers: list[tuple[str, weakref.ref[Handle]]] = []

    def settle(self) -> None:
        """Take over what owners that are gone had counted, and forget workers that nobody knows any more."""
        for account in [account for account in self.accounts if account.owner() is None]:
            self.accounts.remove(account)
            account.add_to(self.gone[account.front])
        self.workers = [entry for entry in self.workers if entry[1]() is not None]


_register = _Register()
_hooked: list[bool] = []


def count(owner: object, front: str, counters: object) -> None:
    """From now on what `counters` holds is part of the sum, for good. To say so again changes nothing."""
    _forget_in_children()
    with _register.lock:
        _register.settle()
        if all(account.owner() is not owner for account in _register.accounts):
            before = _read(counters)
            _register.accounts.append(_Account(weakref.ref(owner), front, counters, before, dict(before)))


def employ(front: str, handles: Iterable[Handle]) -> None:
    """These are the workers of one of its owners, through all their lives."""
    _forget_in_children()
    with _register.lock:
        _register.settle()
        _register.workers.extend((front, weakref.ref(handle)) for handle in handles)


def note(front: str, incident: Incident) -> None:
    with _register.lock:
        totals = _register.gone[front]
        cause = incident.cause_name
        is_one_too_many = cause not in totals.incidents and len(totals.incidents) >= _MOST_CAUSES
        totals.incidents[_OTHERS if is_one_too_many else cause] += 1
        totals.last_incident = incident.time


def read() -> Mapping[str, Totals]:
    """The sum of each front, and who works for it now. It is the caller's own."""
    with _register.lock:
        _register.settle()
        said = _none()
        said.update((front, _copy(totals)) for front, totals in _register.gone.items())
        for account in _register.accounts:
            account.add_to(said[account.front])
        for front, ref in _register.workers:
            handle = ref()
            pid = handle.living_pid() if handle is not None else None
            if pid is not None:
                said[front].worker_pids.append(pid)
        return said


def _copy(totals: Totals) -> Totals:
    return Totals(dict(totals.counts), Counter(totals.incidents), totals.last_incident)


def _read(counters: object) -> Counts:
    read = {name: getattr(counters, name, 0) for name in COUNTS}
    stages = getattr(counters, "stages", None)
    times = stages() if callable(stages) else None  # of a loader; a pool has none
    return read | {name: getattr(times, name, 0) for name in STAGES}


def _forget_in_children() -> None:
    """With the first that counts, and not on import. The lock may be held by a thread that a child does not have."""
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    global _register  # noqa: PLW0603
    _register = _Register()
