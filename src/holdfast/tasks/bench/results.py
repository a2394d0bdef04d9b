"""What came of a comparison: rounds, medians, ratios, and whether ours is slower.

Pure, and standard library only. Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from holdfast.words import plural

TORCH, HOLDFAST = "torch", "holdfast"
LOADERS = (TORCH, HOLDFAST)

RAISED = "raised"
"""The digest of a batch that was none."""

NOISE = 0.1
"""By so much two measurements of the same loader may differ: less is not slower."""
FEW_BATCHES = 10
"""In an epoch of fewer the rate is mostly that of its first and last moments."""


@dataclass(frozen=True, slots=True)
class Round:
    """A loader for some seconds."""

    first_batch_s: float
    """From making the iterator to the first batch."""
    batches: int
    """In all epochs, with the first of each."""
    seconds: float
    """That all of it took, with the start of each epoch."""
    later_batches: int
    """Those after the first of their epoch,"""
    later_s: float
    """and the seconds between the first and the last."""
    epoch_batches: int | None
    """In a whole epoch, where one came to its end."""

    @property
    def rate(self) -> float:
        """Batches per second once they come. Where epochs are one batch long: with the start of each."""
        if self.later_batches and self.later_s > 0:
            return self.later_batches / self.later_s
        return self.batches / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Side:
    """One loader with one number of workers."""

    rounds: tuple[Round, ...] = ()
    failures: int = 0
    """Batches that raised, and it went on."""
    first_failures: tuple[str, ...] = ()
    ended: str | None = None
    """Why it did not go on; None: it did."""
    memory_bytes: int | None = None
    """Of all its processes beside the one that trains: what no other process has."""

    @property
    def rate(self) -> float | None:
        return median(each.rate for each in self.rounds) if self.rounds else None

    @property
    def first_batch_s(self) -> float | None:
        return median(each.first_batch_s for each in self.rounds) if self.rounds else None


@dataclass(frozen=True, slots=True)
class Cell:
    """Both loaders with one number of workers."""

    workers: int
    torch: Side
    holdfast: Side
    compared: int
    """Batches of both, in order."""
    equal: int
    is_random: bool
    """Whether torch's own batches differ from one epoch with the same seed to the next: then ours prove nothing."""

    @property
    def ratio(self) -> float | None:
        """Our batches per second over torch's."""
        ours, theirs = self.holdfast.rate, self.torch.rate
        return ours / theirs if ours is not None and theirs else None

    @property
    def is_slower(self) -> bool:
        """By more than noise: no round of ours was as fast as torch's slowest."""
        if self.ratio is None or self.ratio >= 1 - NOISE:
            return False
        return max(each.rate for each in self.holdfast.rounds) < min(each.rate for each in self.torch.rounds)

    @property
    def differs(self) -> bool:
        return not self.is_random and self.equal < self.compared

    @property
    def problems(self) -> list[str]:
        """What is not as promised, and what is wrong with the data."""
        found = []
        if self.differs:
            found.append(f"{self.compared - self.equal} of {self.compared} batches differ from torch's")
        if self.is_slower:
            found.append(f"holdfast is slower than torch, {self.ratio:.2f} of its rate")
        if self.holdfast.ended:
            found.append(f"holdfast: {self.holdfast.ended}")
        if self.torch.ended:
            found.append(f"torch: {self.torch.ended}")
        if self.holdfast.failures and not self.holdfast.ended:
            found.append(f"{plural(self.holdfast.failures, 'batch')} raised, and holdfast went on")
        return found
