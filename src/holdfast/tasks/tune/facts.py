"""What `holdfast tune` measures, as plain data. A field that could not be measured is None.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number varies from sample to sample."""

    median: float
    p99: float
    max: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """At least one is needed."""
        inorder = sorted(numbers)
        last = len(inorder) - 1
        return cls(inorder[last // 2], inorder[round(0.99 * last)], inorder[last])


@dataclass(frozen=True, slots=True)
class Samples:
    """What one worker took to load samples, one after the other."""

    count: int
    seconds: Spread
    mean_s: float
    first_s: float
    """The longest first sample of a worker: it may have opened files, or filled a cache. It is in no other time."""
    waiting_share: float
    """Of the time: in which its CPU did nothing for it, but wait for a disk, a network or a lock."""
    sample_bytes: Spread
    batch_bytes: int | None
    """The largest batch, collated."""
    collate_s: float | None
    peak_bytes: int | None
    """The most private memory a worker had beyond its start, with the samples of a batch in hand, and the batch."""
    start_bytes: int | None
    """What was its own before the first sample: next to nothing in a fork, all imports in a new interpreter."""

    @property
    def slowest_s(self) -> float:
        return max(self.seconds.max, self.first_s)


@dataclass(frozen=True, slots=True)
class Point:
    """One number of workers."""

    num_workers: int
    batches_per_s: float
    lowest: float
    """Of its rounds, and `highest` too."""
    highest: float
    batches: int
    rounds: int
    first_batch_s: float | None = None
    worker_bytes: int | None = None
    """Private memory of one of its processes, on average."""
    is_computed: bool = False
    """From the times of samples: no loader was measured."""
    is_disturbed: bool = False
    """Samples failed in all of its rounds: without them it may be faster."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is for a loader."""

    cpus: int
    left_bytes: int | None


@dataclass(frozen=True, slots=True)
class Setting:
    """What the user said of his loader."""

    batch_size: int
    step_s: float | None = None
    start_method: str | None = None
    collate: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A sample that was passed over. Of an iterable the index says which worker's stream, and where in it."""

    index: int | str
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """All of it. `curve` is in the order of the numbers of workers."""

    machine: Machine
    setting: Setting
    samples: Samples
    curve: tuple[Point, ...]
    repeats_elements: bool = False
    """Of an iterable dataset: each worker gives the same elements as the others."""
    too_many: int | None = None
    """Workers that were not tried, since they would not fit in memory."""
