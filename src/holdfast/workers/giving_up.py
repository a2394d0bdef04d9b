"""What is raised where workers cannot be had any more: judged and said as every other failure, with its incident.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import traceback
from typing import TypeVar

from holdfast.diagnosis import call_words, inquiry, message, refusals
from holdfast.diagnosis.causes import before_first_sample, too_many_open_files
from holdfast.diagnosis.evidence import Confidence, Diagnosis
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


def no_progress(lost: SupervisorLost, times: int, importing: str | None = None, *, front: str = "") -> TooManyRestarts:
    """Supervisors are lost as fast as they are started. `importing`: what the last one imported then, if anything."""
    last = f", the last time while it was importing {importing}" if importing is not None else ""
    often = "once" if times == 1 else f"{times} times in a row"
    done = f"it was lost {often} without a batch in between{last}; no other was started"
    return told(TooManyRestarts, Account(lost.diagnosis, pid=lost.pid, who="supervisor", done=done), front)


def cannot_start(error: BaseException, done: str, worker_id: int | None = None, *, front: str = "") -> WorkerInitError:
    """A process could not be started, or talked to, from here."""
    if isinstance(error, OSError) and error.errno in refusals.NUMBERS:
        return refused(error.errno, refusals.reached(error.errno), done, worker_id, front=front)
    return _raised_here(error, done, worker_id, front)


def _raised_here(error: BaseException, done: str, worker_id: int | None, front: str) -> WorkerInitError:
    lines = "".join(traceback.format_exception(error))
    diagnosis = inquiry.diagnose(inquiry.evidence_of(error, lines, "starting"))
    account = Account(diagnosis, worker_id=worker_id, pid=os.getpid(), who="main process", done=done)
    return told(WorkerInitError, account, front)


def refused(
    number: int, reached: tuple[str, ...], done: str, worker_id: int | None = None, *, front: str = ""
) -> WorkerInitError:
    """The kernel refused a new process. `reached`: the limits that were, as measured where it was refused."""
    said = os.strerror(number)
    diagnosis = Diagnosis(
        cause=too_many_open_files.NAME if number in (errno.EMFILE, errno.ENFILE) else before_first_sample.NAME,
        confidence=Confidence.CERTAIN,
        summary=f"could be started: {said}",
        because=f"the kernel refused a new process, or a descriptor for it, with {errno.errorcode[number]}: {said}",
        evidence=reached or ("not available: which limit was reached; none of those that can be read was",),
        advice=_ROOM[number],
    )
    return told(WorkerInitError, Account(diagnosis, worker_id=worker_id, done=done, who="no process"), front)


_FEWER = "DataLoader(..., num_workers=1)   fewer workers need fewer processes, descriptors and less memory"
_MORE_FILES = "ulimit -n 65536   in the shell that starts the program", _FEWER
_ROOM = {
    errno.EAGAIN: (
        "ulimit -u   shows how many processes and threads the user may have; a container has --pids-limit as well",
        _FEWER,
    ),
    errno.ENOMEM: ("free -m   shows how much memory is left", _FEWER),
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
}


def no_descriptors(*, front: str = "") -> WorkerInitError:
    """The descriptors by which to talk to a new worker did not arrive: there was no room for them."""
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    done = "a new worker was started, and could not be talked to: no batch can come from it"
    return _raised_here(error, done, None, front)
