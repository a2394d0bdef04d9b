"""What is raised where workers cannot be had any more: judged and said as every other failure, with its incident.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import traceback
from typing import TypeVar

from holdfast.diagnosis import call_words, inquiry, message
from holdfast.diagnosis.message import Account
from holdfast.errors import TooManyRestarts, WorkerError, WorkerInitError
from holdfast.workers.backend import SupervisorLost

Kind = TypeVar("Kind", bound=WorkerError)


def told(kind: type[Kind], account: Account, front: str = "") -> Kind:
    """The error that an account becomes. `front`: whose workers they are, if not a loader's (`call_words`)."""
    if front:
        said = call_words.for_calls(account.diagnosis, front)
        account = dataclasses.replace(account, diagnosis=said, done=call_words.words(account.done))
    error = kind(message.render(account), worker_id=account.worker_id)
    error.incident = message.incident_of(account)
    return error


def no_progress(lost: SupervisorLost, times: int, *, front: str = "") -> TooManyRestarts:
    """Supervisors are lost as fast as they are started."""
    done = f"it was lost {times} times in a row without a batch in between; no other was started"
    return told(TooManyRestarts, Account(lost.diagnosis, pid=lost.pid, who="supervisor", done=done), front)


def cannot_start(error: BaseException, done: str, worker_id: int | None = None, *, front: str = "") -> WorkerInitError:
    """A process could not be started, or talked to, from here."""
    lines = "".join(traceback.format_exception(error))
    diagnosis = inquiry.diagnose(inquiry.evidence_of(error, lines, "starting"))
    account = Account(diagnosis, worker_id=worker_id, pid=os.getpid(), who="main process", done=done)
    return told(WorkerInitError, account, front)


def no_descriptors(*, front: str = "") -> WorkerInitError:
    """The descriptors by which to talk to a new worker did not arrive: there was no room for them."""
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    done = "a new worker was started, and could not be talked to: no batch can come from it"
    return cannot_start(error, done, front=front)
