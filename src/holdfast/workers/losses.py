"""What is said when a worker is lost, or its code raises: the parts that do not depend on what the worker was for.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from holdfast.board_rows import DOING, Phase
from holdfast.diagnosis import inquiry, message
from holdfast.diagnosis.message import Account
from holdfast.errors import (
    TooManyRestarts,
    WorkerCrashed,
    WorkerError,
    WorkerInitError,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from holdfast.incident import Incident
from holdfast.workers.backend import WorkerLost
from holdfast.workers.failures import Failure, add_note, rebuild
from holdfast.workers.messages import Reason
from holdfast.workers.restarts import is_from_outside

OUT_OF_MEMORY = "out of memory"
OVER_LIMIT = "over memory_limit"
_OF_MEMORY = (OUT_OF_MEMORY, OVER_LIMIT, "over memory_budget")
_TAIL_KEPT = 4096  # characters of a worker's stderr in its incident
_LOADED_MODULES = re.compile(r"\n*^Extension modules: .*\(total: \d+\)$", re.MULTILINE)


def kind_of(lost: WorkerLost) -> type[WorkerError]:
    """What is raised in place of what it was to do."""
    if lost.reason is Reason.HUNG:
        return WorkerTimeout
    return WorkerOutOfMemory if lost.diagnosis.cause in _OF_MEMORY else WorkerCrashed


def kind_of_no_start(lost: WorkerLost) -> type[WorkerError]:
    """What is raised if a worker died before its first sample and was not restarted.

    If other processes killed it each time, nothing is wrong with what workers start with: no WorkerInitError.
    """
    is_killed = is_from_outside(lost.exitcode) and lost.diagnosis.cause != OUT_OF_MEMORY
    return TooManyRestarts if is_killed else WorkerInitError


def incident_of_loss(account: Account, lost: WorkerLost) -> Incident:
    """Of a worker that was lost, with what it left behind; less the list of all that it has loaded, which is long, and
    which faulthandler writes below every stack.
    """
    stack = _LOADED_MODULES.sub("", lost.evidence.python_stack)
    tail = _LOADED_MODULES.sub("", lost.evidence.stderr_tail)[-_TAIL_KEPT:].strip()
    said = f"last on its stderr:\n{tail}" if tail else ""
    return message.incident_of(account, seen="\n".join([stack, said]).strip())


def incident_of(failure: Failure, done: str, start_method: str = "", phase: str = "", **where: Any) -> Incident:
    """Of an exception."""
    account = account_of(failure, start_method, phase or DOING[Phase(failure.phase)], done=done, **where)
    return message.incident_of(account, seen=failure.traceback)


def account_of(failure: Failure, start_method: str, phase: str, **where: Any) -> Account:
    """What an exception means."""
    error, seen = rebuild(failure), failure.traceback
    evidence = inquiry.evidence_of(
        error, seen, phase, start_method, memory=failure.memory, descriptors=failure.descriptors
    )
    return Account(diagnosis=inquiry.diagnose(evidence), phase=phase, **where)


def attach(error: BaseException, incident: Incident) -> None:
    """Have the exception carry its incident, whatever class of the user's it is, and say what more is known of it."""
    with contextlib.suppress(Exception):
        object.__setattr__(error, "incident", incident)  # a frozen dataclass allows nobody to set it otherwise
    if incident.cause not in ("dataset exception", "exception") and not isinstance(error, WorkerError):
        advice = "".join(f"\n  try   {each}" for each in incident.advice)
        add_note(error, f"{incident.cause}: {incident.because} ({incident.confidence}){advice}")
