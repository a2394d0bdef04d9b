"""What is said when a worker is lost or a sample is given up: a diagnosis, and what was done, as incident and error.

The first line of a message stands alone, for logs that show only one. Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from holdfast.board_rows import DOING, Phase
from holdfast.diagnosis import inquiry, message
from holdfast.diagnosis.engine import NOT_OF_THE_SAMPLE
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, MemoryGrowth
from holdfast.diagnosis.message import Account
from holdfast.errors import TooManyRestarts, WorkerError
from holdfast.incident import Incident, bounded_repr
from holdfast.words import plural
from holdfast.workers.backend import SupervisorLost, WorkerLost
from holdfast.workers.failures import Failure, capture
from holdfast.workers.losses import (
    OUT_OF_MEMORY,
    OVER_LIMIT,
    attach,
    incident_of,
    incident_of_loss,
    kind_of,
    kind_of_no_start,
)
from holdfast.workers.messages import Reason

_SIGABRT, _SIGKILL = 6, 9

# -- errors ------------------------------------------------------------------------------------------------------------


def given_up(
    lost: WorkerLost, indices: list[Any], epoch: int, batch: int, deaths: int, *, incident_id: str = ""
) -> WorkerError:
    """A sample, or a batch, cost the worker's life or took too long, and there will be no further attempt."""
    index = _in_hand(lost, indices)
    others = [other for k, other in enumerate(indices) if index is None or k != lost.doing.position]
    account = Account(
        diagnosis=lost.diagnosis,
        worker_id=lost.worker_id,
        pid=lost.pid,
        phase=_doing(lost, indices),
        sample_index=index,
        epoch=epoch,
        batch=batch,
        attempt=deaths,
        attempts=deaths,
        done="the worker was restarted each time; its other batches are not affected",
        lost_with_it=tuple(others),
        incident_id=incident_id,
    )
    return kind_of(lost)(_message(account, lost), worker_id=lost.worker_id, sample_index=index)


def died_starting(lost: WorkerLost, max_restarts: int) -> WorkerError:
    """A worker died before its first sample, and there will be no other in its place."""
    kind = kind_of_no_start(lost)
    if kind is TooManyRestarts:
        done = f"it was restarted {plural(max_restarts, 'time')} in a row, as max_restarts={max_restarts} allows"
    else:
        loaded = "nothing was loaded" if lost.doing.unit < 0 else "it was not replaced"
        done = f"{loaded}: another worker would end the same way"
    account = Account(
        diagnosis=lost.diagnosis, worker_id=lost.worker_id, pid=lost.pid, phase=lost.doing.words, done=done
    )
    return kind(_message(account, lost), worker_id=lost.worker_id)


def died_idle(lost: WorkerLost, max_restarts: int) -> TooManyRestarts:
    account = Account(
        diagnosis=lost.diagnosis,
        worker_id=lost.worker_id,
        pid=lost.pid,
        phase=lost.doing.words,
        done=f"it was restarted {plural(max_restarts, 'time')} within a minute, as max_restarts={max_restarts} allows",
    )
    return TooManyRestarts(_message(account, lost), worker_id=lost.worker_id)


def stream_lost(lost: WorkerLost, elements: int, *, incident_id: str = "") -> WorkerError:
    """An element of an iterable ends every worker that asks for it."""
    account = Account(
        diagnosis=lost.diagnosis,
        worker_id=lost.worker_id,
        pid=lost.pid,
        phase=lost.doing.words
        if lost.doing.phase is Phase.REPLAY
        else f"loading element {elements} of its part of the iterable dataset",
        done=f"its part of the iterable dataset ends after {plural(elements, 'element')}: an iterator cannot be moved "
        f"past the next one; what it had delivered is good, and the other workers go on",
        incident_id=incident_id,
    )
    return kind_of(lost)(_message(account, lost), worker_id=lost.worker_id)


def _message(account: Account, lost: WorkerLost) -> str:
    """The account as text, with torch's own sentence for a lost worker."""
    words = message.in_torchs_words(lost.pid, lost.exitcode)
    return message.render(dataclasses.replace(account, in_torchs_words=words))


# -- incidents ---------------------------------------------------------------------------------------------------------


def incident(lost: WorkerLost, indices: list[Any] | None, done: str, **where: Any) -> Incident:
    """Of a worker that was lost."""
    account = Account(
        diagnosis=lost.diagnosis,
        worker_id=lost.worker_id,
        pid=lost.pid,
        phase=lost.doing.words,
        sample_index=_in_hand(lost, indices) if indices is not None else None,
        done=done,
        seen_at=lost.evidence.seen_at,
        **where,
    )
    return incident_of_loss(account, lost)


def incident_of_all(lost: SupervisorLost, done: str, epoch: int) -> Incident:
    """Of all workers that were lost together."""
    who = "supervisor" if lost.evidence.ending is Ending.SUPERVISOR else "loader"
    return message.incident_of(Account(lost.diagnosis, pid=lost.pid, epoch=epoch, done=done, who=who))


def incident_of_own(error: BaseException, phase: str, **where: Any) -> Incident:
    """Of an exception in this process, which then carries it."""
    noted = incident_of(capture(error, ""), "raised", phase=phase, **where)
    attach(error, noted)
    return noted


def incident_of_timeout(timeout_s: float, **where: Any) -> Incident:
    """torch's `timeout` is over: no batch came, and no worker is known to hang."""
    diagnosis = Diagnosis(
        cause="hang",
        confidence=Confidence.POSSIBLE,
        summary=f"had no batch within timeout={timeout_s:g}",
        because="a worker hangs, or to load the next batch takes longer than that",
        advice=(
            "DataLoader(..., sample_timeout=...)   ends a worker that hangs, names its sample and shows its stack",
            "DataLoader(..., timeout=...)   a longer one, where a batch may really take that long",
        ),
    )
    return message.incident_of(Account(diagnosis, phase="waiting for a batch", done="raised", who="loader", **where))


def incident_of_growth(growth: MemoryGrowth, done: str, **where: Any) -> Incident:
    """Of a worker that is alive."""
    diagnosis = inquiry.diagnose(inquiry.evidence_of_growth(growth))
    return message.incident_of(Account(diagnosis=diagnosis, done=done, **where))


def lost_with(failure: Failure, indices: list[Any]) -> str:
    """The other samples of a batch that is delivered as an exception."""
    others = [index for k, index in enumerate(indices) if k != failure.position]
    return (
        f"lost with it, of the same batch: samples {bounded_repr(others)}" if failure.position >= 0 and others else ""
    )


# -- in a few words ----------------------------------------------------------------------------------------------------


def how(lost: WorkerLost) -> str:
    """How a process ended."""
    return lost.diagnosis.summary


def is_from_outside(lost: WorkerLost) -> bool:
    """Whether the end has, as far as can be told, nothing to do with the sample in hand.

    SIGKILL never comes from what a sample does; of another cause a mere possibility does not clear the sample.
    """
    is_kill = lost.reason is Reason.EXITED and lost.exitcode == -_SIGKILL
    found = lost.diagnosis
    return is_kill or (found.cause in NOT_OF_THE_SAMPLE and found.confidence in (Confidence.CERTAIN, Confidence.LIKELY))


def with_needs(lost: WorkerLost, needs: str) -> WorkerLost:
    """With what units took so far as evidence: whether one fits at all."""
    return dataclasses.replace(lost, evidence=dataclasses.replace(lost.evidence, memory_needs=needs))


def is_for_want_of_memory(lost: WorkerLost) -> bool:
    """Whether all processes together took too much, as the kernel or the budget has it."""
    if lost.reason is Reason.EXITED and lost.exitcode == -_SIGKILL:
        return lost.diagnosis.cause == OUT_OF_MEMORY
    return lost.reason is Reason.OVER_BUDGET


def is_for_what_it_kept(lost: WorkerLost) -> bool:
    """Whether it was over its limit with what it had kept of earlier units: nobody can tell what this one needs."""
    if not lost.evidence.memory_kept_bytes:
        return False
    if lost.reason is Reason.EXITED and lost.exitcode == -_SIGABRT:  # by C++, which is refused memory without a word
        return lost.diagnosis.cause == OVER_LIMIT
    return lost.reason is Reason.OVER_LIMIT


def raised(failure: Failure) -> str:
    """An exception in one line: the first of its text, wherever that is among its causes and notes."""
    names = failure.qualname, f"{failure.module}.{failure.qualname}"
    for line in reversed(failure.traceback.split("\n")):
        if line.startswith(names):
            return line
    return failure.qualname


def _in_hand(lost: WorkerLost, indices: list[Any]) -> Any:
    """The index of the sample that was being loaded; None if no single one was."""
    position = lost.doing.position
    return indices[position] if lost.doing.phase is Phase.FETCH and 0 <= position < len(indices) else None


def _doing(lost: WorkerLost, indices: list[Any]) -> str:
    words = DOING[lost.doing.phase]
    if _in_hand(lost, indices) is not None:
        return words
    return f"{words} " + (f"the samples {bounded_repr(indices, 80)}" if indices else "a batch of the iterable dataset")
