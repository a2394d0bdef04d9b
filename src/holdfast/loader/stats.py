"""What a loader counts, and what it tells of it.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """A reading of `loader.stats()`. Counts are of the loader's whole life, over all its iterators."""

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

    def read(self) -> LoaderStats:
        return LoaderStats(**dataclasses.asdict(self))
