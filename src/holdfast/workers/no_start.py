"""A process of ours that ended before it could be told what to do: in the main script, or in an import of the user's.

Under spawn and forkserver a new process imports the main script first. One that has no main guard comes, in there, to
start workers of its own: multiprocessing forbids it, with a traceback in the middle of the user's own. Here such a
process leaves without a word, by a status of its own, and the main process says what is wrong.

Runs in: main process (the errors), supervisor | worker process (`leave_...`).
"""

from __future__ import annotations

import errno
import multiprocessing.process
import os
import sys
from typing import NoReturn

from holdfast.diagnosis import inquiry, message, refusals, signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence
from holdfast.diagnosis.message import Account
from holdfast.errors import WorkerInitError
from holdfast.workers import giving_up

SUPERVISOR = "holdfast-supervisor"
RECRUIT = "holdfast-recruit"
_UNGUARDED_STATUS = 97
_REFUSED_STATUS = 98
_ITSELF = "exit by user code", "failure before the first sample", "unknown"  # say no more than that it has ended


def leave_if_unguarded() -> None:
    """Called where workers are about to be started."""
    process = multiprocessing.process.current_process()
    if process.name in (SUPERVISOR, RECRUIT) and getattr(process, "_inheriting", False):
        os._exit(_UNGUARDED_STATUS)


def leave_refused() -> NoReturn:
    """Called in a worker that was refused a thread of ours: a thread counts as a process does."""
    os._exit(_REFUSED_STATUS)


def is_unguarded(exitcode: int | None) -> bool:
    return exitcode == _UNGUARDED_STATUS


def error_of(
    who: str,
    pid: int,
    exitcode: int | None,
    importing: str | None,
    stderr_tail: str | None = None,
    *,
    front: str = "",
) -> WorkerInitError:
    """What to raise. `importing`: the module that it was importing for the dataset, if it had come so far.

    `stderr_tail`: what it wrote there last; None where it wrote to the terminal itself. `front`: as of `told`.
    """
    if exitcode == _REFUSED_STATUS:
        reached = refusals.reached(errno.EAGAIN)
        return giving_up.refused(
            errno.EAGAIN, reached, f"{who} was started, and ended for want of a thread", front=front
        )
    if is_unguarded(exitcode):
        diagnosis = _unguarded(who)
    else:
        evidence = Evidence(Ending.EXITED, exitcode, "starting", stderr_tail=stderr_tail or "", pid=pid)
        missing = ("what it wrote to stderr: it wrote to the terminal itself",) if stderr_tail is None else ()
        diagnosis = _in_import(evidence, importing, missing)
    done = "no worker was started: another process would end the same way"
    is_torchs_too = exitcode is not None and who != "supervisor" and not front
    words = message.in_torchs_words(pid, exitcode or 0) if is_torchs_too else ""
    account = Account(diagnosis, pid=pid, phase="starting", done=done, who=who, in_torchs_words=words)
    return giving_up.told(WorkerInitError, account, front)


def _unguarded(who: str) -> Diagnosis:
    return Diagnosis(
        cause="missing main guard",
        confidence=Confidence.CERTAIN,
        summary="found no `if __name__ == '__main__':` around the code of the main script that uses the loader",
        because="the start methods spawn and forkserver import the main script in each new process",
        evidence=(f"the {who} process imported the script, and so came to start workers of its own",),
        advice=(
            "put what runs the training under `if __name__ == '__main__':`",
            'DataLoader(..., multiprocessing_context="fork")   on Linux: does not import the script again',
        ),
    )


def _in_import(evidence: Evidence, importing: str | None, missing: tuple[str, ...]) -> Diagnosis:
    """What the engine says, in the place that is known here; and how to see the error whole."""
    found = inquiry.diagnose(evidence)
    ended = signs.ended(evidence) if evidence.exit_code is not None else "made no progress"
    where, again = _place(importing)
    said, is_last = signs.died_of_exception(evidence)
    said = said if is_last else ""
    return Diagnosis(
        cause="failure before the first sample" if found.cause in _ITSELF else found.cause,
        confidence=Confidence.CERTAIN if found.cause in _ITSELF and not said else found.confidence,
        summary=f"{ended} {where}",
        because=f"{where} it {ended}" + (f": {wording.one_line(said)}" if said else ""),
        evidence=(*found.evidence, *(f"not available: {what}" for what in missing)),
        advice=again,
    )


def _place(importing: str | None) -> tuple[str, tuple[str, ...]]:
    """Where it was, in words, and what shows its error whole."""
    if importing is not None:
        where = f"while importing {importing}, for dataset, collate_fn or worker_init_fn"
        return where, (f"python -c 'import {importing}'   shows the error whole",)
    script = wording.one_line(sys.argv[0], 120) or "train.py"
    guard = "put what runs the training under `if __name__ == '__main__':`: then an import of the script runs nothing"
    run = f"""python -c "import runpy; runpy.run_path('{script}', run_name='__mp_main__')"   shows the error whole"""
    return "while importing the main script, as spawn and forkserver do", (run, guard)
