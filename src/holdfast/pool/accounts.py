"""What is said of a call that cost its worker, or that raised: errors and incidents.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import traceback
from concurrent.futures.process import _RemoteTraceback

from holdfast.board_rows import DOING, Phase
from holdfast.diagnosis import message
from holdfast.diagnosis.call_words import for_calls
from holdfast.diagnosis.message import Account
from holdfast.errors import TooManyRestarts, WorkerCrashed, WorkerError
from holdfast.incident import Incident
from holdfast.pool.task import RAISED, Task
from holdfast.words import plural
from holdfast.workers.backend import SupervisorLost, WorkerLost
from holdfast.workers.failures import Failure, capture, rebuild
from holdfast.workers.losses import account_of, attach, incident_of_loss, kind_of, kind_of_no_start


class Accounts:
    """In the words of one front, as `diagnosis/call_words.py` has them."""

    def __init__(self, front: str, start_method: str) -> None:
        self._front = front
        self._start_method = start_method

    def of_call(self, loss: WorkerLost | SupervisorLost, task: Task) -> tuple[Incident, WorkerError | None]:
        """A call has cost its worker. The error is None if the call gets another attempt."""
        is_retried = task.deaths <= task.max_retries
        done = "retried" if is_retried else task.on_failure
        loss = _with_limit(loss, task)
        account = self._account(loss, f"running {task.words}", "the worker was replaced; no other call is affected")
        account = dataclasses.replace(account, attempt=task.deaths, attempts=task.attempts)
        incident = _incident(dataclasses.replace(account, done=done), loss)
        if is_retried:
            return incident, None
        kind = kind_of(loss) if isinstance(loss, WorkerLost) else WorkerCrashed
        error = kind(message.render(self._with_advice(account, task)), worker_id=account.worker_id)
        error.incident = incident
        return incident, error

    def of_nobody(self, loss: WorkerLost | SupervisorLost) -> Incident:
        """Lost between two calls."""
        return _incident(self._account(loss, _doing(loss), "restarted"), loss)

    def of_no_start(self, lost: WorkerLost) -> tuple[Incident, WorkerError]:
        kind = kind_of_no_start(lost)
        why = "every worker in its place was killed" if kind is TooManyRestarts else "another would end the same way"
        return _fatal(kind, self._account(lost, _doing(lost), f"no call can be run: {why}"), lost)

    def of_too_many(self, lost: WorkerLost, max_restarts: int) -> tuple[Incident, WorkerError]:
        done = f"it was restarted {plural(max_restarts, 'time')} within a minute, each time outside any call"
        return _fatal(TooManyRestarts, self._account(lost, _doing(lost), done), lost)

    def of_exception(self, failure: Failure, task: Task) -> tuple[BaseException, Incident | None]:
        """What the function raised, as the standard library's pool gives it: its traceback is the cause.

        With an incident, which it carries, where somebody wants one, or more is known than the exception says.
        """
        error = rebuild(failure, tells_traceback=False)
        object.__setattr__(error, "__cause__", _as_cause(failure.traceback))  # also of a frozen dataclass
        if not task.is_explained and failure.memory is None and not failure.descriptors:
            return error, None
        return error, self._explain(error, failure, f"running {task.words}", task.on_failure)

    def of_start(self, failure: Failure) -> tuple[Incident, BaseException]:
        """What the initializer raised, or what it came with: no worker can be ready."""
        error = rebuild(failure)
        because = "it was raised before the worker was ready for a call"
        return self._explain(error, failure, DOING[Phase.STARTING], RAISED, because), error

    def of_transfer(self, error: BaseException, task: Task, doing: str) -> Incident | None:
        """Of what was raised here: the call, or what came of it, could not be handed over. None if nobody wants one."""
        if not task.is_explained:
            return None
        failure = capture(error, "raised in the main process")
        because = f"it was raised here, {doing} it"
        return self._explain(error, failure, f"{doing} {task.words}", task.on_failure, because)

    def _explain(
        self, error: BaseException, failure: Failure, phase: str, done: str, because: str | None = None
    ) -> Incident:
        account = account_of(failure, self._start_method, phase, done=done)
        diagnosis = for_calls(account.diagnosis, self._front)
        diagnosis = dataclasses.replace(diagnosis, because=because or diagnosis.because)
        incident = message.incident_of(dataclasses.replace(account, diagnosis=diagnosis), seen=failure.traceback)
        attach(error, incident)
        return incident

    def _account(self, loss: WorkerLost | SupervisorLost, phase: str, done: str) -> Account:
        diagnosis = for_calls(loss.diagnosis, self._front)
        seen_at = loss.evidence.seen_at
        if isinstance(loss, WorkerLost):
            return Account(diagnosis, loss.worker_id, loss.pid, phase, done=done, seen_at=seen_at)
        return Account(diagnosis, pid=loss.pid, phase=phase, done=done, who="supervisor", seen_at=seen_at)

    def _with_advice(self, account: Account, task: Task) -> Account:
        if task.max_retries:
            return account
        retry = f"{self._front}(..., max_retries=1)   another attempt, in a new worker"
        advice = (*account.diagnosis.advice, retry)
        return dataclasses.replace(account, diagnosis=dataclasses.replace(account.diagnosis, advice=advice))


def of_refusal(error: Exception) -> Exception:
    """What could not be sent, as the standard library gives it: its traceback as text, and none of our frames, which
    would keep the pool alive.
    """
    text = "".join(traceback.format_exception(error))
    error.__cause__, error.__context__ = _as_cause(text), None
    return error.with_traceback(None)


def _as_cause(text: str) -> BaseException:
    """A traceback as the standard library's pool hands it over: an exception that prints as it."""
    return _RemoteTraceback(f'\n"""\n{text}"""')  # type: ignore[arg-type]  # (it takes a text)


def _fatal(kind: type[WorkerError], account: Account, lost: WorkerLost) -> tuple[Incident, WorkerError]:
    incident = _incident(dataclasses.replace(account, done="raised"), lost)
    error = kind(message.render(account), worker_id=lost.worker_id)
    error.incident = incident
    return incident, error


def _incident(account: Account, loss: WorkerLost | SupervisorLost) -> Incident:
    return incident_of_loss(account, loss) if isinstance(loss, WorkerLost) else message.incident_of(account)


def _doing(loss: WorkerLost | SupervisorLost) -> str:
    return loss.doing.words if isinstance(loss, WorkerLost) else ""


def _with_limit(loss: WorkerLost | SupervisorLost, task: Task) -> WorkerLost | SupervisorLost:
    """A limit that it was over may be this call's own."""
    if isinstance(loss, SupervisorLost):
        return loss
    evidence = loss.evidence
    if task.limit_ms > 0:
        evidence = dataclasses.replace(evidence, sample_timeout_s=task.limit_ms / 1000)
    if task.limit_bytes > 0:
        evidence = dataclasses.replace(evidence, memory_limit_bytes=task.limit_bytes)
    return dataclasses.replace(loss, evidence=evidence)
