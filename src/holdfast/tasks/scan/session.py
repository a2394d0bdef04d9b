r"""One call of `holdfast scan`: begun or continued, until it is finished or interrupted.

    train_set.skipped.jsonl          written when the scan is finished
    train_set.skipped.jsonl.scan     how far it is    \  both are there
    train_set.skipped.jsonl.new      bad samples yet  /  only until then

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from holdfast import HoldfastError, available_cpus
from holdfast.diagnosis.wording import error_line
from holdfast.memory import sizes
from holdfast.tasks.scan import scanning, skipped_file
from holdfast.tasks.scan.interrupts import Interrupted
from holdfast.tasks.scan.outcome import Outcome, Written, summed_up
from holdfast.tasks.scan.progress_file import InUse, OfAnother, ProgressFile, Subject
from holdfast.tasks.scan.scanning import Care, Scan, Watcher


class Refused(Exception):
    """It cannot be scanned as asked. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants; None: not given."""

    target: str
    workers: int | None = None
    timeout_s: float = 60.0
    memory_limit: str | None = None
    start_method: str | None = None
    retries: int = 1
    sample: int | None = None
    seed: int = 0
    skipped_file: Path | None = None
    odd: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is going to be done."""

    dataset: str
    length: int | None
    planned: int | None
    before: int
    workers: int


def run(dataset: Any, request: Request, begin: Callable[[Plan], Watcher]) -> Outcome:
    """Scan, and write the file, unless `Interrupted`. `begin` is told what will be done, and gives who is told how it
    goes. Refused, if it cannot be.
    """
    return _Session(dataset, request).run(begin)


class _Session:
    def __init__(self, dataset: Any, request: Request) -> None:
        self._dataset = dataset
        self._request = request
        self._length = _length(dataset, request)
        self._workers = request.workers or (available_cpus() if self._length is not None else 1)
        _check_limits(request)
        name = re.sub(r"[^\w.-]+", "_", request.target.rpartition(":")[2])
        self._path = request.skipped_file or Path(f"{name}.skipped.jsonl")
        self._new_path = Path(f"{self._path}.new")
        self._known = _known(self._path, self._length, request)

    def run(self, begin: Callable[[Plan], Watcher]) -> Outcome:
        with _progress(Path(f"{self._path}.scan"), self._length, self._workers, self._request) as file:
            if not file.findings.done:
                self._new_path.unlink(missing_ok=True)
            try:
                outcome = self._scan(file, begin)
                return self._finish(outcome, file) if outcome.is_finished else outcome
            finally:
                if not file.findings.done:  # there is nothing to continue from
                    self._remove(file)

    def _scan(self, file: ProgressFile, begin: Callable[[Plan], Watcher]) -> Outcome:
        request, length = self._request, self._length
        indices = None if length is None else scanning.planned(length, request.sample, request.seed)
        planned = None if indices is None else len(indices)
        plan = Plan(type(self._dataset).__name__, length, planned, file.findings.done, self._workers)
        care = Care(plan.workers, request.timeout_s, request.memory_limit, request.start_method, request.retries)
        start, signal, error = time.monotonic(), None, ""
        try:
            scan = Scan(care, file, begin(plan))
            if indices is None:
                scan.elements(self._dataset)
            else:
                scan.samples(self._dataset, indices, self._new_path)
        except Interrupted as interrupted:
            signal = interrupted.number
        except HoldfastError as failed:
            error = str(failed).replace("dataset.dataset.", "dataset.")  # his own is inside ours
        took_s = time.monotonic() - start
        ended = {"seconds": took_s, "signal": signal, "error": error}
        return summed_up(file.findings, target=request.target, **dataclasses.asdict(plan), **ended)

    def _finish(self, outcome: Outcome, file: ProgressFile) -> Outcome:
        """Write the file, unless there never was one and nothing is to be said. Nothing else is left."""
        if self._length is not None:
            new = skipped_file.read(self._new_path, self._length)
            odd = outcome.odd if self._request.odd else {}
            entries = skipped_file.merged(
                self._known,
                new,
                {index: f"odd: {words}" for (_, index), words in odd.items()},
                is_loaded=lambda index: file.findings.is_loaded((0, index)),
            )
            if entries or self._path.exists():
                skipped_file.write(self._path, self._length, entries)
                written = Written(str(self._path), entries, len(self._known.keys() - entries.keys()))
                outcome = dataclasses.replace(outcome, written=written)
        self._remove(file)
        return outcome

    def _remove(self, file: ProgressFile) -> None:
        file.remove()
        self._new_path.unlink(missing_ok=True)


def _length(dataset: Any, request: Request) -> int | None:
    """None of an iterable dataset."""
    target = request.target
    if isinstance(dataset, IterableDataset) or not hasattr(type(dataset), "__getitem__"):
        for name, value in (("--sample", request.sample), ("--skipped-file", request.skipped_file)):
            if value is not None:
                raise Refused(f"{name} needs indices, and {target} is an iterable dataset: it has none. Leave it out.")
        if request.odd:
            raise Refused(f"--odd needs indices, and {target} is an iterable dataset: it has none. Leave it out.")
        return None
    try:
        return len(dataset)
    except Exception as error:
        raise Refused(
            f"{target} does not say how many samples it has: len() raised {error_line(error)}. "
            f"Give it a __len__, or make it an IterableDataset."
        ) from error


def _check_limits(request: Request) -> None:
    if not math.isfinite(request.timeout_s):
        raise Refused(f"--timeout {request.timeout_s} must be a number of seconds, such as 60.")
    try:
        if request.memory_limit is not None:
            sizes.parse_bytes("--memory-limit", request.memory_limit)
    except ValueError as error:
        raise Refused(f"{error}.") from None


def _known(path: Path, length: int | None, request: Request) -> dict[int, str]:
    """What the file says that is to be replaced."""
    if length is None:
        return {}
    try:
        return skipped_file.read(path, length)
    except skipped_file.OfAnotherLength as error:
        if request.again:
            return {}
        raise Refused(
            f"{path} is not written: {error}. Name another with --skipped-file, or replace it with --again."
        ) from None
    except skipped_file.NotOurs as error:
        raise Refused(f"{path} is not written: {error}. Name another with --skipped-file.") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error}. Name another with --skipped-file.") from None


def _progress(path: Path, length: int | None, workers: int, request: Request) -> ProgressFile:
    is_part = request.sample is not None
    subject = Subject(
        request.target,
        length,
        sample=request.sample,
        seed=request.seed if is_part else None,
        workers=workers if length is None else None,
    )
    try:
        return ProgressFile(path, subject, again=request.again)
    except InUse:
        raise Refused(f"{path} is in use: this is being scanned by another process. Wait for it, or end it.") from None
    except OfAnother as error:
        raise Refused(
            f"{path} says how far a scan was, and it cannot be continued: {error}. "
            f"Give the same options again, start over with --again, or name another --skipped-file."
        ) from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error}. Name a file elsewhere with --skipped-file.") from None
