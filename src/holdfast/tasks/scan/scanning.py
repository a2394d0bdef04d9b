"""The scan itself: one epoch of a loader over what is still to be loaded, and a second look at what is in doubt.

In doubt are samples that were passed over though nothing says that they are to blame: all of a batch that could not be
made, one whose worker was killed from outside each time, or when memory was short. They are loaded once more, each
alone, by one worker.

Runs in: main process.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from holdfast import DataLoader, Incident, SkippedSample, TooManyRestarts, WorkerInitError, on_incident
from holdfast.tasks.scan import skipped_file
from holdfast.tasks.scan.batches import Batches
from holdfast.tasks.scan.findings import Bad, Findings, Place
from holdfast.tasks.scan.measured import Measurement, measured_elements, measured_samples, pack, unpack
from holdfast.tasks.scan.progress_file import ProgressFile

_ELEMENTS_AHEAD = 16
_MOST_RESTARTS = 100
_PROGRAM_ERRORS = (ImportError, SyntaxError, NameError, NotImplementedError, MemoryError)
"""A loader raises these, as none of a sample's. Here they are: the sample is tried again, then listed."""


@dataclass(frozen=True, slots=True)
class Care:
    """How samples are loaded: the loader's arguments."""

    workers: int
    timeout_s: float
    memory_limit: str | None
    start_method: str | None
    retries: int


class Watcher(Protocol):
    """Who is told how it goes."""

    def started(self) -> None:
        """Workers have been started: from now on there may be threads."""

    def moved(self, findings: Findings) -> None:
        """More has been found."""

    def ended(self) -> None:
        """The workers have been ended: others may be started now, and not beside a thread."""


def planned(length: int, sample: int | None, seed: int) -> Sequence[int]:
    """The indices that are to be loaded, in order: all, or a random part."""
    if sample is None or sample >= length:
        return range(length)
    return sorted(random.Random(seed).sample(range(length), sample))


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan that is under way: how samples are loaded, where findings are kept, who is told."""

    care: Care
    file: ProgressFile
    watcher: Watcher

    def samples(self, dataset: Any, indices: Iterable[int], bad_file: Path) -> None:
        """Load the samples that are left of `indices`. `bad_file`: where the loader notes those that are to blame."""
        findings, measured = self.file.findings, measured_samples(dataset)

        def load(batches: Batches, workers: int) -> None:
            loader = _loader(measured, self.care, workers, batch_sampler=batches, skipped_file=bad_file)
            self._run(loader, took=batches.took)

        left = findings.left(indices)
        first = next(left, None)
        if first is not None:
            load(Batches(itertools.chain([first], left)), self.care.workers)
        blamed = skipped_file.read(bad_file, len(dataset))
        in_doubt = [index for _, index in sorted(findings.bad) if index not in blamed]
        if in_doubt:
            load(Batches(in_doubt, most=1), 1)

    def elements(self, dataset: Any) -> None:
        """Load all elements of an iterable dataset. Where a worker's part of it breaks off, that is noted as bad."""
        findings, workers = self.file.findings, self.care.workers
        done = {stream: findings.done_in(stream) for stream in range(workers)}
        starts = {stream: position for stream, (position, _) in findings.states.items()}
        measured = measured_elements(dataset, done, findings.states)
        # One at a time: when an element ends its worker, those before it have come, and its place is known.
        loader = _loader(measured, self.care, workers, batch_size=1, prefetch_factor=_ELEMENTS_AHEAD)
        breaks = itertools.count()

        def goes_on(error: Exception) -> bool:
            incident = getattr(error, "incident", None)
            if incident is None or isinstance(error, TooManyRestarts | WorkerInitError) or next(breaks) >= workers:
                return False
            stream = incident.worker_id or 0
            position = findings.done_in(stream)
            if position > done[stream] or (stream, position - 1) not in findings.bad:  # else it ended so before, too
                findings.note_bad(_bad((stream, position), incident, "its part of the dataset ends here"))
            return True

        self._run(loader, goes_on=goes_on, starts=starts)

    def _run(
        self,
        loader: DataLoader[Any],
        took: Callable[[int, float], None] = lambda samples, seconds: None,
        goes_on: Callable[[Exception], bool] = lambda error: False,
        starts: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """One epoch. `goes_on`: whether there is more after what `next()` raised. `starts`: where streams begin."""
        findings = self.file.findings

        def keep() -> None:
            self.file.keep()
            self.watcher.moved(findings)

        def hear(incident: Incident) -> None:  # at once: where every sample is bad there is no batch for a long time
            _note_incident(findings, incident, starts)
            keep()

        end_hearing = on_incident(hear)
        try:
            with loader:
                iterator = iter(loader)
                self.watcher.started()
                for batch in _batches(iterator, goes_on):
                    for each in batch:
                        _note(findings, each)
                    took(len(batch), sum(each.seconds for each in batch))
                    keep()
        finally:
            end_hearing()
            self.watcher.ended()
        for skipped in loader.skipped_samples:
            _note_skipped(findings, skipped, starts)


def _loader(dataset: Any, care: Care, workers: int, **arguments: Any) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        num_workers=workers,
        collate_fn=pack,
        in_order=False,  # who hangs holds up nobody else
        multiprocessing_context=care.start_method,
        on_error="skip",
        max_retries=care.retries,
        retry_on=_PROGRAM_ERRORS,
        max_skipped=None,
        max_restarts=_MOST_RESTARTS,
        sample_timeout=care.timeout_s,
        memory_limit=care.memory_limit,
        **arguments,
    )._for_command()


def _batches(iterator: Iterator[bytes], goes_on: Callable[[Exception], bool]) -> Iterator[list[Measurement]]:
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            if not goes_on(error):
                raise
        else:
            yield unpack(batch)


def _note(findings: Findings, each: Measurement) -> None:
    place = each.stream, each.position
    findings.note(place, each.signature, each.nbytes, each.seconds, is_first=each.is_first)
    if each.state:
        findings.states[each.stream] = each.position + 1, each.state


def _note_skipped(findings: Findings, skipped: SkippedSample, starts: Mapping[int, int]) -> None:
    """One that has no incident of its own: all of its batch were given up, or it was known when the scan went on."""
    place = _place(skipped.index, starts)
    if place is not None:
        is_batch = skipped.reason.startswith("its batch: ")
        findings.note_bad(Bad(place, "batch not made" if is_batch else "found before", skipped.reason))


def _note_incident(findings: Findings, incident: Incident, starts: Mapping[int, int]) -> None:
    place = _place(incident.sample_index, starts)
    if place is None:
        return
    if incident.done == "skipped":
        findings.note_bad(_bad(place, incident))
    else:
        findings.note_retried(place, incident.id)


def _bad(place: Place, incident: Incident, more: str = "") -> Bad:
    because = "; ".join(words for words in (incident.because, more) if words)
    cause = incident.cause.split(":")[0]
    return Bad(place, cause, incident.summary, because, incident.where, incident.confidence, incident.id)


def _place(index: Any, starts: Mapping[int, int]) -> Place | None:
    """Of what a loader calls a sample. An element of an iterable is counted from where its worker's stream began."""
    if isinstance(index, tuple):
        stream, position = index
        return stream, position + starts.get(stream, 0)
    return None if index is None else (0, index)
