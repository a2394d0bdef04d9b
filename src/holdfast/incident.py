"""One thing that went wrong, and what was done about it.

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

_KEPT_AT_EACH_END = 1000


@dataclass(frozen=True, slots=True)
class Incident:
    """What happened, where, and what was done. Fields that do not apply are None."""

    cause: str
    """In a few words: "was killed by SIGSEGV", "hung", "ValueError: bad header"."""
    done: str
    """What holdfast did: "restarted", "retried", "skipped", "replaced by 7", "raised"."""
    worker_id: int | None = None
    pid: int | None = None
    phase: str | None = None
    sample_index: Any = None
    epoch: int | None = None
    batch: int | None = None
    attempt: int | None = None
    """Which one at this sample, or at this batch where no sample is to blame."""
    evidence: str = ""
    """What was seen, such as a traceback or the stacks of a process that hung."""
    time: float = field(default_factory=time.time)

    def __str__(self) -> str:
        who = "" if self.worker_id is None else f"worker {self.worker_id}"
        where = "" if self.phase is None else f" while {self.phase}"
        what = "" if self.sample_index is None else f" sample {self.sample_index!r}"
        batch = "" if self.batch is None else f" (epoch {self.epoch}, batch {self.batch})"
        between = "" if not who else " " if self.cause[:1].islower() else ": "
        return f"{who}{between}{self.cause}{where}{what}{batch}: {self.done}"


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
        self.counts[incident.cause.split(":")[0]] += 1  # without the words of an exception, which may all differ
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
        return f"<{self.total} incidents: {dict(self.counts)}>"
