"""Readings of a run: how far it is, how long it waited, and what memory its processes have, every few seconds.

    clock of the caller ──► Pace: is one due? ──► memory_of(pid) (/proc) ──► reading (pure) ──► a line

Their number grows with the logarithm of time: after every few hundred of them the interval doubles.

Runs in: main process.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psutil

from holdfast.records.limits import LIMITS, Limits

_MOST_WORKERS = 64  # of more, the rest is summed up
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


class Counters(Protocol):
    """What the loader counts, over its whole life."""

    @property
    def batches(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def waited_s(self) -> float: ...
    @property
    def restarts(self) -> int: ...
    @property
    def skipped(self) -> int: ...

    def details(self) -> Mapping[str, Any]:
        """What else a reading is to say: where the time went."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process has in memory."""

    resident_bytes: int
    private_bytes: int | None
    """Of that, what is no file and not shared, as the batches are; None where the platform does not tell."""


class Pace:
    """When the next reading is due. Pure: the clock is the caller's, any that only goes forward."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._count = 0
        self._nbytes = 0
        self.interval_s = limits.interval_s
        self.due_s = -math.inf
        """Before the first call of `start`: at once."""

    def start(self, now_s: float) -> None:
        """The first reading is due soon: a run that is over before has none."""
        self.due_s = now_s + min(self._limits.first_s, self.interval_s)

    def taken(self, now_s: float, nbytes: int) -> None:
        """A reading was taken, and its line is so long."""
        self._count += 1
        self._nbytes += nbytes
        limits = self._limits
        if self._count >= limits.readings_per_interval or self._nbytes >= limits.reading_bytes_per_interval:
            self.interval_s *= 2
            self._count = self._nbytes = 0
        self.due_s = now_s + self.interval_s


WorkerPids = Callable[[], Mapping[int, int]]
"""By worker id."""


class WorkerReading(NamedTuple):
    """A worker process, and what it has."""

    worker_id: int
    pid: int
    memory: Memory


def reading(counters: Counters, main: Memory | None, workers: Sequence[WorkerReading]) -> dict[str, Any]:
    """What a reading says. Pure."""
    first, rest = workers[:_MOST_WORKERS], workers[_MOST_WORKERS:]
    said = {
        "batches": counters.batches,
        "samples": counters.samples,
        "waited_s": round(counters.waited_s, 3),
        "restarts": counters.restarts,
        "skipped": counters.skipped,
        "main": None if main is None else [main.resident_bytes, main.private_bytes],
        "workers": [[one.pid, one.memory.resident_bytes, one.memory.private_bytes, one.worker_id] for one in first],
        **counters.details(),
    }
    if rest:
        resident = sum(one.memory.resident_bytes for one in rest)
        private = sum(one.memory.private_bytes or 0 for one in rest)
        said["more_workers"] = [len(rest), resident, private]
    return said


class Readings:
    """Takes readings, in step with a `Pace`."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.pace = Pace(limits)
        self._started_s: float | None = None

    def take(self, now_s: float, counters: Counters, worker_pids: WorkerPids) -> dict[str, Any] | None:
        """A reading, if one is due. The first call only starts the clock."""
        if now_s < self.pace.due_s:
            return None
        if self._started_s is None:
            self._started_s = now_s
            self.pace.start(now_s)
            return None
        found = ((worker_id, pid, memory_of(pid)) for worker_id, pid in worker_pids().items())
        workers = [WorkerReading(worker_id, pid, memory) for worker_id, pid, memory in found if memory is not None]
        return {
            "at_s": round(now_s - self._started_s, 3),
            "interval_s": self.pace.interval_s,
            **reading(counters, memory_of(os.getpid()), workers),
        }


def memory_of(pid: int) -> Memory | None:
    """The memory of a process; None if it is gone, or may not be looked at."""
    try:
        if sys.platform == "linux":
            return _from_statm(Path(f"/proc/{pid}/statm").read_bytes())
        return Memory(psutil.Process(pid).memory_info().rss, None)
    except (OSError, ValueError, psutil.Error):
        return None


def own_bytes(pid: int | None = None) -> int | None:
    """What a process, this one if none is named, has of its own; all that is resident where only that is known."""
    memory = memory_of(os.getpid() if pid is None else pid)
    if memory is None:
        return None
    return memory.resident_bytes if memory.private_bytes is None else memory.private_bytes


def _from_statm(statm: bytes) -> Memory:
    """Pages: size, resident, shared... A zombie has none at all."""
    _, resident, shared = map(int, statm.split()[:3])
    return Memory(resident * _PAGE_BYTES, (resident - shared) * _PAGE_BYTES)
