"""What a loader counts, and what it tells of it.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from holdfast.loader.slowest import Slowest, SlowSample
from holdfast.loader.stats_table import table
from holdfast.records import readings
from holdfast.workers.board import Board

_NANO = 1e9


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Where the time of all workers went, together: seconds of each stage of a batch."""

    fetch_s: float = 0.0
    """In the dataset."""
    collate_s: float = 0.0
    """In `collate_fn`."""
    send_s: float = 0.0
    """Laying the batch out for the main process."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What the processes have of their own when it is asked for, in bytes; all that is resident where only that is
    known.
    """

    main_bytes: int | None = None
    workers_bytes: tuple[int, ...] = ()
    """Of each worker that runs now, in the order of their ids."""


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """A reading of `loader.stats()`; printed, it is a table. Counts are of the loader's whole life, over all its
    iterators.
    """

    batches: int
    samples: int
    """In those batches."""
    waited_s: float
    """Seconds that `next()` spent waiting for a batch."""
    restarts: int
    """Worker processes that were lost and replaced."""
    supervisor_restarts: int
    recycled: int
    """Worker processes that were replaced between batches, as `recycle_after` says."""
    skipped: int
    """Samples that were passed over, skipped or replaced."""
    new_interpreters: str | None
    """Why the workers of spawn or forkserver are new interpreters and not forks of one that has the imports done."""
    stages: StageTimes = StageTimes()
    memory: MemoryUse = MemoryUse()
    slowest: tuple[SlowSample, ...] = ()
    """The ten samples that took longest to load, slowest first; only of samples that take more than some 50
    microseconds, which are timed one by one.
    """

    def __str__(self) -> str:
        return table(self)


@dataclass(slots=True)
class Counters:
    """The same, while it is being counted."""

    batches: int = 0
    samples: int = 0
    waited_s: float = 0.0
    restarts: int = 0
    supervisor_restarts: int = 0
    recycled: int = 0
    skipped: int = 0
    new_interpreters: str | None = None
    stages_ns: tuple[int, int, int] = (0, 0, 0)
    """Of iterators that are closed, and of loading without workers."""
    slowest: Slowest = field(default_factory=Slowest)
    boards: list[Board] = field(default_factory=list, repr=False)
    """Of iterators that are not closed: what their workers have measured is there."""

    def add_stages(self, fetch_ns: int, collate_ns: int, send_ns: int = 0) -> None:
        fetch, collate, send = self.stages_ns
        self.stages_ns = fetch + fetch_ns, collate + collate_ns, send + send_ns

    def settle(self, board: Board) -> None:
        """Its iterator is being closed. To settle again does nothing."""
        if board in self.boards:
            self.boards.remove(board)
            self.add_stages(*board.stages_ns())

    def stages(self) -> StageTimes:
        parts = [self.stages_ns, *(board.stages_ns() for board in self.boards)]
        fetch, collate, send = (sum(part) / _NANO for part in zip(*parts, strict=True))
        return StageTimes(fetch, collate, send)

    def read(self, worker_pids: Iterable[int] = ()) -> LoaderStats:
        return LoaderStats(
            **self.counts(),
            stages=self.stages(),
            memory=_memory_of(worker_pids),
            slowest=self.slowest.samples,
        )

    def counts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _COUNTS}

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has what was counted, and none of the iterators."""
        return _copied, (self.counts(), self.stages_ns, self.slowest)


class CountedInRun:
    """What a loader has counted since this was made, for the record of its run: it may have had others before."""

    def __init__(self, counters: Counters) -> None:
        self._counters, self.before = counters, counters.read()

    @property
    def batches(self) -> int:
        return self._counters.batches - self.before.batches

    @property
    def samples(self) -> int:
        return self._counters.samples - self.before.samples

    @property
    def waited_s(self) -> float:
        return self._counters.waited_s - self.before.waited_s

    @property
    def restarts(self) -> int:
        return self._counters.restarts - self.before.restarts

    @property
    def skipped(self) -> int:
        return self._counters.skipped - self.before.skipped

    def details(self) -> Mapping[str, Any]:
        """What the record says of stages and samples."""
        now, before = self._counters.stages(), self.before
        samples = [one for one in self._counters.slowest.samples if not any(one is old for old in before.slowest)]
        names = [one.name for one in fields(StageTimes)]
        return {
            "stages": {name: round(getattr(now, name) - getattr(before.stages, name), 4) for name in names},
            "slowest": [[one.index, round(one.seconds, 6), one.worker_id, one.epoch] for one in samples],
        }

    def summary(self) -> dict[str, Any]:
        """All of it, for the last line of the record."""
        counts = self._counters.counts()
        for name, number in counts.items():
            if isinstance(number, int | float):
                counts[name] = number - getattr(self.before, name)
        return {**counts, "memory": asdict(_memory_of(())), **self.details()}


_COUNTS = tuple(one.name for one in fields(LoaderStats) if one.name not in ("stages", "memory", "slowest"))


def _copied(counts: dict[str, Any], stages_ns: tuple[int, int, int], slowest: Slowest) -> Counters:
    return Counters(**counts, stages_ns=stages_ns, slowest=slowest)


def _memory_of(worker_pids: Iterable[int]) -> MemoryUse:
    workers = [nbytes for pid in worker_pids if (nbytes := readings.own_bytes(pid)) is not None]
    return MemoryUse(readings.own_bytes(), tuple(workers))
