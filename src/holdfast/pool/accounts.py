"""What is said of a call that cost its worker, or that raised: errors and incidents.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures.process import _RemoteTraceback

from holdfast.diagnosis import message
from holdfast.diagnosis.call_words import for_calls
from holdfast.diagnosis.message import Account
from holdfast.errors import TooManyRestarts, WorkerCrashed, WorkerError, WorkerInitError
from holdfast.incident import Incident
from holdfast.pool.task import Task
from holdfast.workers.backend import SupervisorLost, WorkerLost
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.losses import account_of, attach, incident_of_loss, kind_of

FRONT = "ProcessPoolExecutor"
_RETRY = f"{FRONT}(..., max_retries=1)   another attempt, in a new worker"


def of_call(loss: WorkerLost | SupervisorLost, task: Task) -> tuple[Incident, WorkerError | None]:
    """A call has cost its worker. The error is None if the call gets another attempt."""
    is_retried = task.deaths <= task.max_retries
    done = "retried" if is_retried else "raised"
    loss = _with_limit(loss, task)
    account = _account(loss, f"running {task.words}", "the worker was replaced; no other call is affected")
    account = dataclasses.replace(account, attempt=task.deaths, attempts=task.attempts)
    incident = _incident(dataclasses.replace(account, done=done), loss)
    if is_retried:
        return incident, None
    kind = kind_of(loss) if isinstance(loss, WorkerLost) else WorkerCrashed
    error = kind(message.render(_with_advice(account, task)), worker_id=account.worker_id)
    error.incident = incident
    return incident, error


def of_nobody(loss: WorkerLost | SupervisorLost) -> Incident:
    """Lost between two calls."""
    return _incident(_account(loss, _doing(loss), "restarted"), loss)


def of_no_start(lost: WorkerLost) -> tuple[Incident, WorkerError]:
    account = _account(lost, _doing(lost), "no call can be run: another worker would end the same way")
    return _fatal(WorkerInitError, account, lost)


def of_too_many(lost: WorkerLost, max_restarts: int) -> tuple[Incident, WorkerError]:
    done = f"it was restarted {max_restarts} times within a minute, each time outside any call"
    return _fatal(TooManyRestarts, _account(lost, _doing(lost), done), lost)


def of_exception(failure: Failure, task: Task, start_method: str) -> BaseException:
    """What the function raised, as the standard library's pool gives it: its traceback is the cause."""
    error = rebuild(failure, tells_traceback=False)
    error.__cause__ = _RemoteTraceback(f'\n"""\n{failure.traceback}"""')
    if task.is_explained or failure.memory is not None or failure.descriptors:
        account = account_of(failure, start_method, f"running {task.words}", done="raised")
        account = dataclasses.replace(account, diagnosis=for_calls(account.diagnosis, FRONT))
        attach(error, message.incident_of(account, seen=failure.traceback))
    return error


def _fatal(kind: type[WorkerError], account: Account, lost: WorkerLost) -> tuple[Incident, WorkerError]:
    incident = _incident(dataclasses.replace(account, done="raised"), lost)
    error = kind(message.render(account), worker_id=lost.worker_id)
    error.incident = incident
    return incident, error


def _account(loss: WorkerLost | SupervisorLost, phase: str, done: str) -> Account:
    diagnosis = for_calls(loss.diagnosis, FRONT)
    seen_at = loss.evidence.seen_at
    if isinstance(loss, WorkerLost):
        return Account(diagnosis, loss.worker_id, loss.pid, phase, done=done, seen_at=seen_at)
    return Account(diagnosis, pid=loss.pid, phase=phase, done=done, who="supervisor", seen_at=seen_at)


def _incident(account: Account, loss: WorkerLost | SupervisorLost) -> Incident:
    return incident_of_loss(account, loss) if isinstance(loss, WorkerLost) else message.incident_of(account)


def _doing(loss: WorkerLost | SupervisorLost) -> str:
    return loss.doing.words if isinstance(loss, WorkerLost) else ""


def _with_limit(loss: WorkerLost | SupervisorLost, task: Task) -> WorkerLost | SupervisorLost:
    """The limit that it was over was this call's own."""
    if isinstance(loss, SupervisorLost) or task.limit_ms <= 0:
        return loss
    evidence = dataclasses.replace(loss.evidence, sample_timeout_s=task.limit_ms / 1000)
    return dataclasses.replace(loss, evidence=evidence)


def _with_advice(account: Account, task: Task) -> Account:
    if task.max_retries:
        return account
    advice = (*account.diagnosis.advice, _RETRY)
    return dataclasses.replace(account, diagnosis=dataclasses.replace(account.diagnosis, advice=advice))
