"""What came of an epoch of the demo, and whether every sample of it is accounted for.

Pure, and standard library only. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FINISHED = "finished"


@dataclass(slots=True)
class Outcome:
    """One epoch under one loader, while it goes on and after."""

    delivered: list[list[int]] = field(default_factory=list)
    """The samples of each batch that came, in order."""
    ended: str = ""
    """`FINISHED`, or the error that ended the epoch, as the training loop sees it."""
    seconds: float = 0.0

    @property
    def batches(self) -> int:
        return len(self.delivered)

    @property
    def samples(self) -> int:
        return sum(map(len, self.delivered))


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that went wrong in our epoch. `sample` is None where it was none's."""

    sample: int | None
    happened: str
    done: str
    id: str = ""
    """In the record of the run: "7f3a.2". Empty where there is none."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A sample of our epoch that was not delivered, and which was in its place, if any."""

    sample: int
    reason: str
    replaced_by: int | None


@dataclass(frozen=True, slots=True)
class OurOutcome:
    """Our epoch, with what the loader says about it."""

    epoch: Outcome
    events: list[Event]
    passed_over: list[PassedOver]
    problems: list[str]
    """Why the epoch is not whole. Empty, as promised: each sample came once and in order, or is listed."""

    @property
    def run_id(self) -> str | None:
        """Of its record; None where none was written, as where there is no place for it."""
        return next((event.id.rpartition(".")[0] for event in self.events if event.id), None)


@dataclass(frozen=True, slots=True)
class FaultsResult:
    """The epoch with every bad sample under both loaders, and torch's epochs with only one of them."""

    torch: Outcome
    torch_alone: dict[str, Outcome]
    holdfast: OurOutcome


def problems_of(epoch: Outcome, planned: Sequence[Sequence[int]], passed_over: Sequence[PassedOver]) -> list[str]:
    """Say what is missing, repeated or out of order: nothing may differ from the plan but what is listed."""
    if epoch.ended != FINISHED:
        return [f"the epoch ended with: {epoch.ended}"]
    listed = {one.sample: one.replaced_by for one in passed_over}
    expected = [batch for batch in (_without(listed, indices) for indices in planned) if batch]
    if len(expected) != epoch.batches:
        return [f"{epoch.batches} batches came, not {len(expected)}"]
    pairs = enumerate(zip(epoch.delivered, expected, strict=True))
    return [f"batch {number} is {came}, not {wanted}" for number, (came, wanted) in pairs if came != wanted]


def _without(listed: Mapping[int, int | None], indices: Sequence[int]) -> list[int]:
    """A batch as it must come: the listed samples left out, or replaced as the list says."""
    chosen = (listed.get(index, index) for index in indices)
    return [index for index in chosen if index is not None]
