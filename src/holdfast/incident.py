"""One thing that went wrong, and what was done about it.

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import operator
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, overload

from holdfast.words import plural

_KEPT_AT_EACH_END = 1000
_LONGEST_REPR = 200


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened, where, and what was done. Fields that do not apply are None."""

    cause: str
    """Its name in docs/failures: "segmentation fault", "hang", "dataset exception"."""
    done: str
    """What holdfast did: "restarted", "retried", "skipped", "replaced by 7", "returned", "raised"."""
    worker_id: int | None = None
    pid: int | None = None
    phase: str | None = None
    sample_index: Any = None
    epoch: int | None = None
    batch: int | None = None
    attempt: int | None = None
    """Which one at this sample, or at this batch where no sample is to blame."""
    confidence: str = ""
    """In the cause: "certain", "likely", "possible" or "unknown"."""
    summary: str = ""
    """In a few words that go on from "worker 1": "was killed by SIGSEGV", "hung", "raised ValueError: bad header"."""
    because: str = ""
    """Why, in a sentence."""
    where: str = ""
    """In the code: "my_dataset.py:31 in __getitem__ -> libfast.so+0x1110 decode_block"."""
    evidence: str = ""
    """What was seen, such as a traceback or the stacks of a process that hung."""
    advice: tuple[str, ...] = ()
    """What to do about it, the best first."""
    time: float = field(default_factory=time.time)
    id: str = field(default="", compare=False)
    """In the record of the run: "7f3a.2". Empty where it is in none."""

    @property
    def cause_name(self) -> str:
        """Without the words of an exception, which may all differ: what incidents are counted by."""
        return self.cause.split(":")[0]

    def identify(self, incident_id: str) -> None:
        """Once, by what writes it down: who holds the incident already is to see it too."""
        object.__setattr__(self, "id", incident_id)

    def __str__(self) -> str:
        """One line."""
        said = self.summary or self.cause
        who = "" if self.worker_id is None else f"worker {self.worker_id}"
        where = "" if self.phase is None else f" while {self.phase}"
        what = "" if self.sample_index is None else f" sample {bounded_repr(self.sample_index)}"
        batch = "" if self.batch is None else f" (epoch {self.epoch}, batch {self.batch})"
        between = "" if not who else " " if said[:1].islower() else ": "
        return " ".join(f"{who}{between}{said}{where}{what}{batch}: {self.done}".splitlines())

    def to_json(self) -> dict[str, Any]:
        """Plain data for a record. An index that is neither a number nor a text is kept as its repr."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        return data | {"sample_index": _plain_index(self.sample_index), "advice": [*self.advice]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Incident:
        """From such a record, also one of another version: what is not known here is left out."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{"cause": "unknown", "done": ""} | known | {"advice": tuple(known.get("advice") or ())})


def _plain_index(index: Any) -> int | str | None:
    if index is None or isinstance(index, str):
        return index
    try:
        return operator.index(index)  # also of numpy, and bool
    except Exception:
        return bounded_repr(index)


def bounded_repr(value: Any, longest: int = _LONGEST_REPR) -> str:
    """Of an object of the user's, such as an index of a sampler: its repr may be anything, or raise."""
    try:
        return repr(value)[:longest]
    except Exception:
        return f"<{type(value).__qualname__}>"


class Incidents(Sequence[Incident]):
    """All incidents of a loader, in order. Bounded: of many, the first and the last thousand are kept.

    `total` counts all of them, `counts` all by their cause.
    """

    def __init__(self) -> None:
        self._first: list[Incident] = []
        self._last: deque[Incident] = deque(maxlen=_KEPT_AT_EACH_END)
        self.total = 0
        self.counts: Counter[str] = Counter()

    def add(self, incident: Incident) -> None:
        self.total += 1
        self.counts[incident.cause_name] += 1
        if len(self._first) < _KEPT_AT_EACH_END:
            self._first.append(incident)
        else:
            self._last.append(incident)

    def __len__(self) -> int:
        return len(self._first) + len(self._last)

    @overload
    def __getitem__(self, key: int) -> Incident: ...
    @overload
    def __getitem__(self, key: slice) -> list[Incident]: ...
    def __getitem__(self, key: int | slice) -> Incident | list[Incident]:
        return [*self][key]

    def __iter__(self) -> Iterator[Incident]:
        yield from self._first
        yield from self._last

    def __repr__(self) -> str:
        return f"<{plural(self.total, 'incident')}: {dict(self.counts)}>"
