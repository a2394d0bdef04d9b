"""One call of `holdfast tune`: samples, then the curve, then the proposal, within the time it was given.

Whatever ends it early, an interrupt or a dataset that fails, what is known by then is in the outcome.

Runs in: main process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils.data import IterableDataset

from holdfast import TooManySkipped, available_cpus
from holdfast.diagnosis.wording import error_line, one_line
from holdfast.memory import cgroups
from holdfast.tasks.tune import proposal, rates, sampling
from holdfast.tasks.tune.curve import Curve
from holdfast.tasks.tune.facts import Failed, Machine, Measured, Point, Samples, Setting
from holdfast.tasks.tune.guarded import MOST_FAILED, Loaders, Order
from holdfast.tasks.tune.notes import Course, notes
from holdfast.tasks.tune.proposal import Need, Proposal
from holdfast.tasks.tune.sampling import CollateFailed, Sampling
from holdfast.tasks.tune.watched import Weighed
from holdfast.words import took

_SAMPLES_SHARE = 0.2
_TIMEOUT_SHARE, _LEAST_TIMEOUT_S, _MOST_TIMEOUT_S = 1 / 6, 1.0, 30.0


class Refused(Exception):
    """It cannot be measured as asked. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants."""

    setting: Setting
    seconds: float
    max_workers: int | None = None


class Watcher(Protocol):
    """Who is told how it goes, between two batches."""

    def sampled(self, weighed: Sequence[Weighed]) -> None: ...

    def measured(self, num_workers: int, batches_per_s: float | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that is known at the end. Without `samples` nothing could be measured, and `problem` says why."""

    dataset: str
    length: int | None
    machine: Machine
    seconds: float
    samples: Samples | None
    curve: tuple[Point, ...]
    proposal: Proposal | None
    notes: tuple[str, ...]
    failed: tuple[Failed, ...]
    problem: str
    is_interrupted: bool

    @property
    def is_iterable(self) -> bool:
        return self.length is None


def run(dataset: Any, collate: Callable[[list[Any]], Any] | None, request: Request, watcher: Watcher) -> Outcome:
    """Measure, and propose. Refused, before anything is loaded."""
    return _Session(dataset, collate, request, watcher).run()


class _Session:
    def __init__(
        self, dataset: Any, collate: Callable[[list[Any]], Any] | None, request: Request, watcher: Watcher
    ) -> None:
        self._dataset, self._collate, self._request, self._watcher = dataset, collate, request, watcher
        self._machine = Machine(available_cpus(), cgroups.left_bytes(cgroups.limited_cgroups_of("self")))
        timeout_s = min(max(_LEAST_TIMEOUT_S, _TIMEOUT_SHARE * request.seconds), _MOST_TIMEOUT_S)
        self._order = Order(_length(dataset))
        self._loaders = Loaders(self._order, request.setting.start_method, timeout_s)
        self._sampling = Sampling(self._loaders, request.setting.batch_size, collate)
        self._curve: Curve | None = None
        self._too_many: int | None = None
        self._problem = ""

    def run(self) -> Outcome:
        start = time.monotonic()
        is_interrupted = False
        try:
            self._measure(start + self._request.seconds)
        except KeyboardInterrupt:
            is_interrupted = True
        return self._outcome(time.monotonic() - start, is_interrupted=is_interrupted)

    def _measure(self, deadline_s: float) -> None:
        try:
            self._sampling.run(self._dataset, _SAMPLES_SHARE * self._request.seconds, self._watcher.sampled)
        except CollateFailed as failed:
            self._problem = f"The samples do not make a batch: {failed}. Name your collate_fn with --collate MODULE:FN."
            return
        except Exception as error:  # also the loader's own: what came before it counts
            self._problem = _in_words(error)
        if self._sampling.weighed:
            self._measure_curve(deadline_s)
        elif not self._problem:
            self._problem = self._why_none()

    def _measure_curve(self, deadline_s: float) -> None:
        setting, counts = self._request.setting, self._counts()
        samples = self._samples()
        share_s = max(0.1, (deadline_s - time.monotonic()) / (2 * len(counts)))
        size = rates.measured_batch_size(setting.batch_size, samples.mean_s, share_s)
        self._curve = Curve(
            self._loaders, self._dataset, setting.batch_size, size, self._collate, self._watcher.measured
        )
        self._curve.run(counts, deadline_s)
        if self._curve.error is not None and not self._problem:
            self._problem = _in_words(self._curve.error)

    def _counts(self) -> list[int]:
        """Only one where more would deliver the same; none that does not fit in memory."""
        if self._repeats():
            return [1]
        need = Need(self._measured(()))
        counts = rates.worker_counts(self._machine.cpus, self._request.max_workers)
        self._too_many = next((count for count in counts if count > 1 and not need.fits(count)), None)
        return [count for count in counts if self._too_many is None or count < self._too_many]

    def _why_none(self) -> str:
        if not self._order.failed:
            return "It gave no element at all."
        longest = took(self._loaders.sample_timeout_s)
        return f"No sample came. One that takes longer than {longest} counts as hung here: more --seconds allow more."

    # -- what is known -------------------------------------------------------------------------------------------------

    def _samples(self) -> Samples:
        return sampling.summed_up(self._sampling.weighed, self._request.setting.batch_size)

    def _repeats(self) -> bool:
        return self._order.length is None and sampling.repeats(self._sampling.weighed)

    def _measured(self, curve: tuple[Point, ...]) -> Measured:
        setting, samples = self._request.setting, self._samples()
        return Measured(self._machine, setting, samples, curve, self._repeats(), self._too_many)

    def _outcome(self, took_s: float, *, is_interrupted: bool) -> Outcome:
        points = tuple(self._curve.points()) if self._curve is not None else ()
        curve = (*self._in_process(), *points) if points else ()
        proposed = proposal.propose(self._measured(points)) if points else None
        return Outcome(
            type(self._dataset).__name__,
            self._order.length,
            self._machine,
            took_s,
            self._samples() if self._sampling.weighed else None,
            curve,
            proposed,
            self._notes(curve, proposed),
            tuple(self._order.failed),
            self._problem,
            is_interrupted,
        )

    def _in_process(self) -> list[Point]:
        """Without workers, reckoned from what samples took: one that crashes would end us.

        Not where one call loads many: alone they take longer.
        """
        samples = self._samples()
        if getattr(self._dataset, "__getitems__", None) or samples.collate_s is None:
            return []
        per_s = 1 / max(1e-9, self._request.setting.batch_size * samples.mean_s + samples.collate_s)
        return [Point(0, per_s, per_s, per_s, 0, 0, is_computed=True)]

    def _notes(self, curve: tuple[Point, ...], proposed: Proposal | None) -> tuple[str, ...]:
        if proposed is None or self._curve is None:
            return ()
        order = self._order
        loads = None if order.length is None else order.drawn / order.length
        course = Course(self._request.seconds, self._curve.measured_batch_size, self._curve.untried, loads)
        return tuple(notes(self._request.setting, curve, proposed.workers, course))


def _in_words(error: Exception) -> str:
    if isinstance(error, TooManySkipped):
        return f"More than {MOST_FAILED} samples failed: it was not gone on with."
    return one_line(f"A loader ended early: {type(error).__name__}: {error}".partition("\n\n")[0])


def _length(dataset: Any) -> int | None:
    """None of an iterable dataset."""
    if isinstance(dataset, IterableDataset):
        return None
    if not hasattr(type(dataset), "__getitem__"):
        raise Refused("it has __iter__ and no __getitem__: a loader takes such a one only as a torch IterableDataset.")
    try:
        length = len(dataset)
    except Exception as error:
        raise Refused(f"its len() raised {error_line(error)}. A loader needs it.") from error
    if length < 1:
        raise Refused("it has no samples.")
    return length
