"""What a scan found, in the end or when it was interrupted, as it is shown. Pure.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.tasks.scan.findings import Bad, Findings, Place, Ranked


@dataclass(frozen=True, slots=True)
class Written:
    """The file for `DataLoader(skipped_file=...)`."""

    path: str
    entries: Mapping[int, str]
    load_now: int
    """How many the file had before that could be loaded now, and are no longer in it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`planned` and `length` are None of an iterable dataset."""

    target: str
    dataset: str
    """The name of its class."""
    length: int | None
    planned: int | None
    before: int
    """Samples that were scanned before this scan was continued."""
    loaded: int
    bad: tuple[Bad, ...]
    odd: Mapping[Place, str]
    common: tuple[str, ...]
    retried: Mapping[Place, str]
    slowest: tuple[Ranked, ...]
    largest: tuple[Ranked, ...]
    nbytes: int
    load_s: float
    """Of all samples together, in all workers."""
    seconds: float
    """Since this scan was begun or continued."""
    workers: int
    written: Written | None = None
    signal: int | None = None
    """That interrupted it."""
    error: str = ""
    """Why it could not go on."""

    @property
    def is_finished(self) -> bool:
        return self.signal is None and not self.error

    @property
    def is_iterable(self) -> bool:
        return self.length is None

    @property
    def rate(self) -> float:
        """Samples per second, since it was begun or continued."""
        return (self.loaded + len(self.bad) - self.before) / self.seconds if self.seconds > 0 else 0.0

    def as_data(self) -> dict[str, Any]:
        """Plain data, as docs/schemas/scan.json has it."""
        listed = set() if self.written is None else set(self.written.entries)
        return {
            "target": self.target,
            "dataset": self.dataset,
            "iterable": self.is_iterable,
            "finished": self.is_finished,
            "signal": self.signal,
            "error": self.error or None,
            "length": self.length,
            "planned": self.planned,
            "scanned_before": self.before,
            "loaded": self.loaded,
            "bytes": self.nbytes,
            "load_seconds": self.load_s,
            "seconds": self.seconds,
            "samples_per_second": self.rate,
            "workers": self.workers,
            "common": [*self.common],
            "bad": [self._bad_data(bad, listed) for bad in self.bad],
            "odd": [{"index": self.index(place), "differs": words} for place, words in self.odd.items()],
            "retried": [{"index": self.index(place), "incident": each or None} for place, each in self.retried.items()],
            "slowest": [
                {"index": self.index(each.place), "seconds": each.value, "first_of_worker": each.is_first}
                for each in self.slowest
            ],
            "largest": [{"index": self.index(each.place), "bytes": int(each.value)} for each in self.largest],
            "skipped_file": None if self.written is None else {"path": self.written.path, "samples": len(listed)},
        }

    def _bad_data(self, bad: Bad, listed: set[int]) -> dict[str, Any]:
        data = dataclasses.asdict(bad)
        del data["place"]
        in_file = not self.is_iterable and bad.place[1] in listed
        return {"index": self.index(bad.place), **data, "incident": bad.incident or None, "in_skipped_file": in_file}

    def index(self, place: Place) -> int | list[int]:
        """Of an iterable: the worker, and the position in its part."""
        return [*place] if self.is_iterable else place[1]


def summed_up(findings: Findings, **given: Any) -> Outcome:
    """With what follows from the findings."""
    common = findings.common()
    return Outcome(
        loaded=findings.loaded,
        bad=tuple(bad for _, bad in sorted(findings.bad.items())),
        odd=findings.odd(common),
        common=tuple(str(each) for each in common if each.is_there),
        retried={place: each for place, each in sorted(findings.retried.items()) if place not in findings.bad},
        slowest=tuple(findings.slowest),
        largest=tuple(findings.largest),
        nbytes=findings.nbytes,
        load_s=findings.load_s,
        **given,
    )
