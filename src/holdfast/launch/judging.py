"""What a group that failed is told as: the error, by its first rank.

Runs in: main process.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from holdfast.board_rows import Phase
from holdfast.diagnosis import message
from holdfast.diagnosis.evidence import Diagnosis
from holdfast.errors import WorkerOutOfMemory, WorkerTimeout
from holdfast.launch import telling
from holdfast.launch.errors import (
    RankCrashed,
    RankError,
    RankInitError,
    RankOutOfMemory,
    RankRaised,
    RankTimeout,
    signal_name_of,
)
from holdfast.launch.register import Register
from holdfast.launch.states import RankState
from holdfast.workers import losses
from holdfast.workers.backend import WorkerLost
from holdfast.workers.failures import Failure, rebuild

_KINDS: dict[type, type[RankError]] = {WorkerTimeout: RankTimeout, WorkerOutOfMemory: RankOutOfMemory}


class _Judged(NamedTuple):
    kind: type[RankError]
    diagnosis: Diagnosis
    exit_code: int
    who: str = ""  # where it was no rank


def error_of(register: Register, first: RankState, start_method: str, done: str) -> RankError:
    """What to raise. Its `__cause__` is what the first rank's function raised, if it did."""
    failure = register.failures.get(first.rank)
    judged = _judge(register, first, failure, start_method)
    account = telling.account_of(judged.diagnosis, first, done, judged.who)
    traceback = failure.traceback if failure is not None else ""
    text = telling.render(account, first, register.states, traceback)
    error = judged.kind(text, first.rank, first.pid or 0, judged.exit_code, signal_name_of(judged.exit_code))
    error.ranks = tuple(register.states)
    error.incident = message.incident_of(account, seen=_seen(register, first, traceback))
    if failure is not None:
        error.__cause__ = rebuild(failure, tells_traceback=False)  # that is in the message
    return error


def _judge(register: Register, first: RankState, failure: Failure | None, start_method: str) -> _Judged:
    loss = register.losses.get(first.rank)
    if failure is not None:
        raised = rebuild(failure)
        diagnosis = losses.account_of(failure, start_method, "").diagnosis
        if not isinstance(raised, SystemExit):
            return _Judged(RankRaised, diagnosis, 1)
        status = raised.code if isinstance(raised.code, int) else 1
        return _Judged(RankCrashed, loss.diagnosis if loss is not None else diagnosis, status)
    if loss is not None:
        return _Judged(_kind_of(loss), loss.diagnosis, loss.exitcode)
    assert register.lost_all is not None
    return _Judged(RankCrashed, register.lost_all.diagnosis, -signal.SIGKILL, "supervisor")


def _kind_of(loss: WorkerLost) -> type[RankError]:
    if loss.doing.phase is Phase.STARTING:
        return RankInitError
    return _KINDS.get(losses.kind_of(loss), RankCrashed)


def _seen(register: Register, first: RankState, traceback: str) -> str:
    loss = register.losses.get(first.rank)
    stack = loss.evidence.python_stack if loss is not None else ""
    tail = f"last on its stderr:\n{first.stderr_tail.strip()}" if first.stderr_tail.strip() else ""
    return "\n".join(part for part in (traceback, stack, tail) if part)
