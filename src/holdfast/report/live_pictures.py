"""What the live view shows: a run at one moment, as data. `live_model.py` makes it, `live.py` draws it.

Every text in a picture is clean. Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from holdfast.counted import LOADER
from holdfast.report.waiting import Waiting

RUNNING, ENDED, DIED = "running", "ended", "died"


@dataclass(frozen=True, slots=True)
class WorkerPicture:
    """One worker."""

    worker_id: int
    pid: int | None
    doing: str
    """ "loading", "waiting for work"."""
    sample: int | str | None
    """In hand."""
    batch: int | None
    since_s: float | None
    batches_per_s: float | None
    """None: not known, or it runs calls."""
    memory_bytes: int | None
    limit_bytes: int | None
    restarts: int

    @property
    def memory_share(self) -> float | None:
        """Of its limit; None where there is none, or nothing is known."""
        if self.memory_bytes is None or not self.limit_bytes:
            return None
        return min(max(self.memory_bytes / self.limit_bytes, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class IncidentPicture:
    """One thing that went wrong."""

    id: str
    time: float | None
    worker_id: int | None
    sample: int | str | None
    done: str
    """ "retried", "skipped", "replaced by 7"."""
    summary: str
    """ "died of a segmentation fault"."""


@dataclass(frozen=True, slots=True)
class RunPicture:
    """One run at one moment."""

    id: str
    script: str
    dataset: str
    """What it loads; of calls, the function."""
    front: str
    rank: int | None
    pid: int | None
    state: str
    """RUNNING, ENDED or DIED: without a last word."""
    age_s: float | None
    """Since its start; of one that is over, how long it took, if it says so."""
    is_fresh: bool
    """Whether its workers can be looked at; if not, this is what the record said last."""
    batches: int
    samples: int
    skipped: int
    restarts: int
    batches_per_s: float | None
    samples_per_s: float | None
    waiting: Waiting
    workers: tuple[WorkerPicture, ...]
    incidents: int
    last_incidents: tuple[IncidentPicture, ...]
    """The oldest first."""

    @property
    def is_over(self) -> bool:
        return self.state != RUNNING

    @property
    def loads(self) -> bool:
        """Samples, in batches; if not, it runs calls."""
        return self.front == LOADER


def to_json(picture: RunPicture) -> dict[str, Any]:
    """As `docs/schemas/top.json` says."""
    return dataclasses.asdict(picture)
