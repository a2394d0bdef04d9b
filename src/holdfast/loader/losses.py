"""What is said when a worker is lost. Pure: from what was seen to words.

The first line stands alone, for logs that show only one. Runs in: main process.
"""

from __future__ import annotations

import signal
from typing import Any

from holdfast.errors import TooManyRestarts, WorkerCrashed, WorkerInitError
from holdfast.workers.backend import WorkerLost
from holdfast.workers.board import Phase

_DOING = {Phase.FETCH: "loading", Phase.COLLATE: "collating", Phase.SEND: "sending"}


def unit_in_hand(lost: WorkerLost) -> int | None:
    """The unit a worker was working on when it was lost."""
    return lost.doing.unit if lost.doing.phase in _DOING else None


def crashed(lost: WorkerLost, indices: Any, attempt: int, *, auto_collation: bool) -> WorkerCrashed:
    """A unit killed its worker, and there will be no further attempt."""
    index, what = _sample_in_hand(lost, indices, auto_collation=auto_collation)
    advice = f"\n  try     load it in this process: loader.dataset[{index!r}]" if index is not None else ""
    message = (
        f"worker {lost.worker_id} (pid {lost.pid}) {how(lost)} while {what}\n"
        f"  where   batch {lost.doing.unit}, attempt {attempt} of {attempt}\n"
        f"  done    the worker was restarted each time; its other batches are not affected{advice}"
    )
    return WorkerCrashed(message, worker_id=lost.worker_id, sample_index=index)


def died_starting(lost: WorkerLost) -> WorkerInitError:
    message = (
        f"worker {lost.worker_id} (pid {lost.pid}) {how(lost)} before its first sample\n"
        f"  where   while loading the dataset in the worker, or in worker_init_fn\n"
        f"  done    it was restarted once and died again"
    )
    return WorkerInitError(message, worker_id=lost.worker_id)


def died_idle(lost: WorkerLost, times: int) -> TooManyRestarts:
    who = f"worker {lost.worker_id} (pid {lost.pid})"
    message = f"{who} {how(lost)} between batches, {times} times without a batch in between"
    return TooManyRestarts(message, worker_id=lost.worker_id)


def stream_lost(worker_id: int, reason: str) -> WorkerCrashed:
    message = (
        f"worker {worker_id} was lost ({reason}): its part of the iterable dataset ends here\n"
        f"  done    what it had delivered is good; the other workers go on"
    )
    return WorkerCrashed(message, worker_id=worker_id)


def how(lost: WorkerLost) -> str:
    """How a process ended, in a few words."""
    if lost.exitcode >= 0:
        return f"exited with status {lost.exitcode}"
    try:
        return f"was killed by {signal.Signals(-lost.exitcode).name}"
    except ValueError:
        return f"was killed by signal {-lost.exitcode}"


def _sample_in_hand(lost: WorkerLost, indices: Any, *, auto_collation: bool) -> tuple[Any, str]:
    phase, position = lost.doing.phase, lost.doing.position
    if phase is Phase.FETCH and not auto_collation:
        return indices, f"loading dataset[{indices!r}]"
    if phase is Phase.FETCH and position >= 0:
        return indices[position], f"loading sample {indices[position]!r}"
    return None, f"{_DOING[phase]} the samples {indices!r:.200}"
