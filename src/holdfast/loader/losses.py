"""What is said when a worker is lost or a sample is given up. Pure: from what was seen to words.

The first line stands alone, for logs that show only one. Runs in: main process.
"""

from __future__ import annotations

import signal
from typing import Any

from holdfast.errors import TooManyRestarts, WorkerCrashed, WorkerError, WorkerInitError, WorkerTimeout
from holdfast.incident import Incident
from holdfast.workers.backend import WorkerLost
from holdfast.workers.board import Phase
from holdfast.workers.failures import Failure
from holdfast.workers.messages import Reason

_DOING = {
    Phase.STARTING: "starting",
    Phase.IDLE: "waiting for work",
    Phase.FETCH: "loading",
    Phase.COLLATE: "collating",
    Phase.SEND: "sending",
    Phase.ENDING: "ending",
    Phase.BACKOFF: "waiting for another attempt",
    Phase.REPLAY: "running the iterable up to where it was",
    Phase.HAND_OVER: "handing a batch over",
}
_FROM_OUTSIDE = {getattr(signal, name, None) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")}


def given_up(lost: WorkerLost, indices: list[Any], batch: int, deaths: int) -> WorkerError:
    """A sample, or a batch, cost the worker's life or took too long, and there will be no further attempt."""
    index, what = _in_hand(lost, indices)
    others = [] if index is None else [other for k, other in enumerate(indices) if k != lost.doing.position]
    lines = [
        f"worker {lost.worker_id} (pid {lost.pid}) {how(lost)} while {what}",
        f"  where   batch {batch}, attempt {deaths} of {deaths}",
        "  done    the worker was restarted each time; its other batches are not affected",
    ]
    if others:
        lines.append(f"  lost    with it, of the same batch: samples {others!r:.200}")
    if index is not None:
        lines.append(f"  try     load it in this process: loader.dataset[{index!r}]")
        lines.append('          DataLoader(..., on_error="skip")   go on without it')
    if lost.stack:
        lines.append(f"  stack   {_indented(lost.stack)}")
    return _kind(lost)("\n".join(lines), worker_id=lost.worker_id, sample_index=index)


def died_starting(lost: WorkerLost) -> WorkerInitError:
    message = (
        f"worker {lost.worker_id} (pid {lost.pid}) {how(lost)} before its first sample\n"
        f"  where   while loading the dataset in the worker, or in worker_init_fn\n"
        f"  try     run worker_init_fn and load a sample in this process: num_workers=0"
    )
    return WorkerInitError(message, worker_id=lost.worker_id)


def died_idle(lost: WorkerLost, max_restarts: int) -> TooManyRestarts:
    message = (
        f"worker {lost.worker_id} (pid {lost.pid}) {how(lost)} while {_DOING[lost.doing.phase]}\n"
        f"  done    it was restarted {max_restarts} times within a minute, as max_restarts={max_restarts} allows\n"
        f"  try     find out what ends it: no sample was being loaded"
    )
    return TooManyRestarts(message, worker_id=lost.worker_id)


def stream_lost(worker_id: int, reason: str, elements: int, lost: WorkerLost | None = None) -> WorkerError:
    lines = [
        f"worker {worker_id} was lost ({reason}): its part of the iterable dataset ends after {elements} elements",
        "  why     the next element ends every worker that asks for it, and an iterator cannot be moved past it",
        "  done    what it had delivered is good; the other workers go on",
    ]
    if lost is not None and lost.stack:
        lines.append(f"  stack   {_indented(lost.stack)}")
    return _kind(lost)("\n".join(lines), worker_id=worker_id)


def _kind(lost: WorkerLost | None) -> type[WorkerError]:
    return WorkerTimeout if lost is not None and lost.reason is Reason.HUNG else WorkerCrashed


def how(lost: WorkerLost) -> str:
    """How a process ended, in a few words."""
    if lost.reason is Reason.HUNG:
        return "hung"
    if lost.reason is Reason.STOPPED:
        return "was stopped by a signal and not continued"
    if lost.exitcode >= 0:
        return f"exited with status {lost.exitcode}"
    try:
        return f"was killed by {signal.Signals(-lost.exitcode).name}"
    except ValueError:
        return f"was killed by signal {-lost.exitcode}"


def is_from_outside(lost: WorkerLost) -> bool:
    """Whether the end may have nothing to do with the sample in hand: nothing in a process sends it these itself."""
    return lost.reason is Reason.EXITED and -lost.exitcode in _FROM_OUTSIDE


def incident(lost: WorkerLost, indices: list[Any] | None, done: str, **where: Any) -> Incident:
    index = _in_hand(lost, indices)[0] if indices is not None else None
    return Incident(
        cause=how(lost),
        done=done,
        worker_id=lost.worker_id,
        pid=lost.pid,
        phase=_DOING[lost.doing.phase],
        sample_index=index,
        evidence=lost.stack,
        **where,
    )


def doing(phase: int) -> str:
    """What a worker was doing, in a word or a few."""
    return _DOING[Phase(phase)]


def raised(failure: Failure) -> str:
    """An exception in one line: the first of its text, wherever that is among its causes and notes."""
    names = failure.qualname, f"{failure.module}.{failure.qualname}"
    for line in reversed(failure.traceback.split("\n")):
        if line.startswith(names):
            return line
    return failure.qualname


def _in_hand(lost: WorkerLost, indices: list[Any]) -> tuple[Any, str]:
    phase, position = lost.doing.phase, lost.doing.position
    if phase is Phase.FETCH and 0 <= position < len(indices):
        return indices[position], f"loading sample {indices[position]!r}"
    return None, f"{_DOING[phase]} " + (
        f"the samples {indices!r:.200}" if indices else "a batch of the iterable dataset"
    )


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n          ")
