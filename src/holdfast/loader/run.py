"""The run of a loader, as it goes to disk: begun with its first iterator, ended with the loader.

    iterator ──► begin, tick      Ledger.note ──► note      close() | garbage | exit of the interpreter ──► end

One record for all iterators of a loader. A loader that is used again after `close()` begins another. A copy of a
loader, and a loader in a worker process, have none of another's; that of a forked child writes nothing into its
parent's. torch is imported by the time a loader exists. Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import holdfast
from holdfast import counted, options
from holdfast.incident import Incident
from holdfast.loader.stats import CountedInRun, Counters
from holdfast.records.facts import RunFacts
from holdfast.records.lines import cut
from holdfast.records.readings import WorkerPids
from holdfast.records.writer import RunRecord
from holdfast.workers import start_methods
from holdfast.workers.lives import Life

_LONGEST_REASON = 500


class Run:
    """What the loader says of itself while it runs. Where nothing is recorded, all of this does nothing."""

    def __init__(self, counters: Counters, *, is_recorded: bool) -> None:
        self._counters = counters
        self.counted = CountedInRun(counters)
        self._is_recorded = is_recorded
        self._record = RunRecord.none()
        self._ending: weakref.finalize[..., Run] | None = None  # while it is under way

    def begin(
        self, loader: Any, start_method: str | None, budget_bytes: int | None = None, *, is_counted: bool = True
    ) -> None:
        """With every iterator: the first one begins the record. `is_counted`: by us, and not torch's own iterator."""
        if is_counted:
            counted.count(self, counted.LOADER, self._counters)
        if self._ending is not None or not self._is_recorded or not options.diagnoses() or _is_in_worker():
            return
        self._record = RunRecord.open(_facts(loader, start_method, budget_bytes))
        self.counted = CountedInRun(self._counters)
        self._ending = weakref.finalize(self, _end, self._record, self.counted if is_counted else None)

    def note(self, incident: Incident) -> None:
        """Write it down, and give it the id that it has there."""
        incident_id = self._record.note_incident(_said(incident))
        if incident_id is not None:
            incident.identify(incident_id)

    @property
    def token(self) -> int:
        """What the status boards of its iterators are known by."""
        return self._record.token

    def note_worker(self, life: Life, *, why: str) -> None:
        """A worker process has started, or ended."""
        self._record.note_worker({**life._asdict(), "why": why})

    def note_skipped(self, epoch: int, index: Any, reason: str, replaced_by: Any) -> None:
        reason = cut(reason, _LONGEST_REASON)
        self._record.note_skipped({"epoch": epoch, "index": index, "reason": reason, "replaced_by": replaced_by})

    def tick(self, now_s: float, worker_pids: WorkerPids = dict) -> None:
        """Take a reading, if one is due. Next to nothing if not."""
        self._record.tick(now_s, self.counted, worker_pids)

    def end(self) -> None:
        """Write the last line. To end again does nothing."""
        if self._ending is not None:
            self._ending()
        self._ending, self._record = None, RunRecord.none()

    def __reduce__(self) -> tuple[Any, ...]:
        return _not_begun, (self._counters, self._is_recorded)


def _not_begun(counters: Counters, is_recorded: bool) -> Run:
    return Run(counters, is_recorded=is_recorded)


def _end(record: RunRecord, counted_in_run: CountedInRun | None) -> None:
    """Also at exit: `weakref.finalize` sees to that, after the workers have ended."""
    record.close(counted_in_run.summary() if counted_in_run is not None else None)


def _said(incident: Incident) -> dict[str, Any]:
    said = incident.to_json()
    del said["id"]  # it gets one by being written
    if isinstance(said["sample_index"], str):
        said["sample_index"] = incident.sample_index  # not the repr of an object, which may hold a sample
    return said


def _is_in_worker() -> bool:
    from torch.utils.data import get_worker_info

    return get_worker_info() is not None or start_methods.is_starting()


def _facts(loader: Any, start_method: str | None, budget_bytes: int | None) -> RunFacts:
    import torch

    rank, world_size = _place_among_ranks()
    return RunFacts(
        holdfast_version=holdfast.__version__,
        torch_version=str(torch.__version__),
        num_workers=loader.num_workers,
        start_method=start_method,
        batch_size=loader.batch_size,
        sample_timeout_s=loader.sample_timeout,
        dataset=type(loader.dataset).__name__,
        dataset_length=_length(loader.dataset),
        rank=rank,
        world_size=world_size,
        on_error=loader.on_error,
        memory_limit_bytes=loader._ledger.policy.care.memory_limit,
        memory_budget_bytes=budget_bytes,
    )


def count_ranks() -> int | None:
    """How many processes train together, if torch knows of others."""
    return _place_among_ranks()[1]


def _length(dataset: Any) -> int | None:
    with contextlib.suppress(Exception):  # it is the user's, and asked for a note only
        return len(dataset)
    return None


def _place_among_ranks() -> tuple[int | None, int | None]:
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None, None
    return distributed.get_rank(), distributed.get_world_size()
