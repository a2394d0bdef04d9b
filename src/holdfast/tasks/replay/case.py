"""What is to be loaded again, as far as a record tells.

    start line + incident ──► Case ──► sample(case)   an index of a map-style dataset
                                   └─► part(case)     elements of one worker's part of an iterable dataset

A record may be of any version and full of anything: a field of another type than it should have counts as not there.
An index that was an object is in no record.

Pure, and without torch. Runs in: main process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.records.reader import Run
from holdfast.words import plural

_OBJECT = re.compile(r"<[^<>]{1,200}>")  # as records/lines.py writes what has no plain form
_CUT = re.compile(r" \[\.\.\. \d+ characters cut \.\.\.\] ")
_LOADER = "DataLoader"
_METHODS = ("fork", "spawn", "forkserver")


class CannotReplayError(Exception):
    """Why not, and what to do instead: for who gave the command."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the run. None: it had none, or it is not known."""

    memory_limit_bytes: int | None = None
    sample_timeout_s: float | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Part:
    """Elements of an iterable dataset: from `first` to `last` of what one of `num_workers` workers makes."""

    worker_id: int
    num_workers: int
    first: int
    last: int

    def __str__(self) -> str:
        which = f"element {self.first}" if self.first == self.last else f"elements {self.first} to {self.last}"
        return f"{which} of worker {self.worker_id}'s part"


@dataclass(frozen=True, slots=True)
class Case:
    """An incident, and the run it is of. Texts are empty where nothing is known."""

    id: str
    cause: str
    summary: str
    phase: str
    time: float | None
    index: Any
    """As it was written; None: it is of no single sample."""
    worker_id: int | None
    batch: int | None
    num_workers: int
    batch_size: int | None
    start_method: str | None
    dataset: str
    """The name of its class."""
    dataset_length: int | None
    target: str
    limits: Limits
    knows_limits: bool
    """Whether the record says which limits there were, or that there were none."""


def case_of(run: Run, number: int) -> Case:
    """The incident of that number. CannotReplayError if there is none, or it is not of a loader."""
    front = _text(run.start, "front")
    if front not in ("", _LOADER):
        raise CannotReplayError(
            f"Run {run.id} is of {front}: it made calls, whose arguments are in no record. "
            f"'holdfast report {run.id}' says what is known of them."
        )
    entry = next((entry for entry in run.incidents if entry.get("number") == number), None)
    if entry is None:
        raise CannotReplayError(_no_such(run, number))
    limits = Limits(_whole(run.start, "memory_limit_bytes"), _seconds(run.start, "sample_timeout_s"))
    method = _text(run.start, "start_method")
    return Case(
        id=f"{run.id}.{number}",
        cause=_text(entry, "cause") or "unknown",
        summary=_text(entry, "summary"),
        phase=_text(entry, "phase"),
        time=_seconds(entry, "time"),
        index=entry.get("sample_index"),
        worker_id=_whole(entry, "worker_id"),
        batch=_whole(entry, "batch"),
        num_workers=_whole(run.start, "num_workers") or 0,
        batch_size=_whole(run.start, "batch_size"),
        start_method=method if method in _METHODS else None,
        dataset=_text(run.start, "dataset"),
        dataset_length=_whole(run.start, "dataset_length"),
        target=_text(run.start, "target"),
        limits=limits,
        knows_limits="memory_limit_bytes" in run.start and "sample_timeout_s" in run.start,
    )


def with_limits(case: Case, memory_limit_bytes: int | None, sample_timeout_s: float | None) -> Case:
    """With other limits than the run's."""
    return replace(case, limits=Limits(memory_limit_bytes, sample_timeout_s))


def sample(case: Case) -> Any:
    """The index that a map-style dataset was asked for."""
    if case.index is None:
        doing = f" while {case.phase}" if case.phase else ""
        raise CannotReplayError(
            f"Incident {case.id} is of no single sample: {case.summary or case.cause}{doing}. "
            f"--index INDEX loads one of your choice under the same limits."
        )
    told = case.index
    if isinstance(told, str) and (_OBJECT.fullmatch(told) or _CUT.search(told)):
        raise CannotReplayError(
            f"The index of incident {case.id} was {told}: objects and very long texts are in no record. "
            f"Say it yourself, as in --index 17 or --index \"'a name'\"."
        )
    return as_index(told)


def as_index(told: Any) -> Any:
    """As it was before it was written: JSON has no tuples."""
    return tuple(map(as_index, told)) if isinstance(told, list) else told


def part(case: Case) -> Part:
    """The elements of an iterable dataset that were in hand.

    Of an exception the element is known. Of a death only the batch: where all workers take turns, that says which of
    its worker's elements it was to be made of.
    """
    told = case.index
    if isinstance(told, list) and len(told) == 2 and all(isinstance(each, int) for each in told):
        worker_id, element = told
        return Part(worker_id, case.num_workers, element, element)
    if case.worker_id is None or case.batch is None or case.batch < 0 or case.phase != "loading":
        raise CannotReplayError(
            f"Incident {case.id} is of no element of the iterable dataset: {case.summary or case.cause}."
        )
    size = case.batch_size or 1
    earlier = case.batch // max(case.num_workers, 1)
    return Part(case.worker_id, case.num_workers, earlier * size, earlier * size + size - 1)


def check_within(index: Any, length: int | None, case: Case) -> None:
    """CannotReplayError where the dataset has no such sample: it is then another one than the run's."""
    if length is None or not isinstance(index, int) or -length <= index < length:
        return
    then = f" The run's had {case.dataset_length}." if case.dataset_length is not None else ""
    raise CannotReplayError(
        f"Sample {index} is beyond this dataset, which has {plural(length, 'sample')}.{then} Name the dataset of that "
        f"run: --dataset MODULE:OBJECT."
    )


def _no_such(run: Run, number: int) -> str:
    known = sorted(entry["number"] for entry in run.incidents if isinstance(entry.get("number"), int))
    if not known:
        return f"Run {run.id} has no incident: nothing went wrong in it."
    are = "is" if run.damaged_lines == 1 else "are"
    damaged = f" {plural(run.damaged_lines, 'line')} of its record {are} damaged." if run.damaged_lines else ""
    more = " There were more than its record holds." if run.is_full else ""
    span = f"{run.id}.{known[0]}" if len(known) == 1 else f"{run.id}.{known[0]} to {run.id}.{known[-1]}"
    return f"Run {run.id} has no incident {number}, but {span}.{damaged}{more} 'holdfast replay {run.id}' lists them."


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _whole(entry: Mapping[str, Any], name: str) -> int | None:
    value = entry.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(entry: Mapping[str, Any], name: str) -> float | None:
    value = entry.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
