"""A process of ours that ended before it could be told what to do: in the main script, or in an import of the user's.

Under spawn and forkserver a new process imports the main script first. One that has no main guard comes, in there, to
start workers of its own: multiprocessing forbids it, with a traceback in the middle of the user's own. Here such a
process leaves without a word, by a status of its own, and the main process says what is wrong.

Runs in: main process (the errors), supervisor | worker process (`leave_if_unguarded`).
"""

from __future__ import annotations

import multiprocessing.process
import os
import signal

from holdfast.errors import WorkerInitError
from holdfast.incident import Incident

SUPERVISOR = "holdfast-supervisor"
RECRUIT = "holdfast-recruit"
_UNGUARDED_STATUS = 97


def leave_if_unguarded() -> None:
    """Called where workers are about to be started."""
    process = multiprocessing.process.current_process()
    if process.name in (SUPERVISOR, RECRUIT) and getattr(process, "_inheriting", False):
        os._exit(_UNGUARDED_STATUS)


def error_of(who: str, pid: int, exitcode: int | None, importing: str | None) -> WorkerInitError:
    """What to raise. `importing`: the module that it was importing for the dataset, if it had come so far."""
    if exitcode == _UNGUARDED_STATUS:
        cause, confidence, text = "missing main guard", "certain", _UNGUARDED.format(who=who, pid=pid)
    else:
        cause, confidence = "failure before the first sample", "certain"
        shape = _IN_SCRIPT if importing is None else _IN_MODULE
        text = shape.format(who=who, pid=pid, ended=_how_it_ended(exitcode), module=importing)
    error = WorkerInitError(text)
    first, *others = text.split("\n")
    error.incident = Incident(
        cause, "raised", pid=pid, phase="starting", confidence=confidence, summary=first, because="\n".join(others)
    )
    return error


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None:
        return "it made no progress"
    if exitcode >= 0:
        return f"it exited with status {exitcode}"
    try:
        return f"it was killed by {signal.Signals(-exitcode).name}"
    except ValueError:
        return f"it was killed by signal {-exitcode}"


_UNGUARDED = """\
the main script has no `if __name__ == '__main__':` around the code that uses the loader

  where      the {who} process (pid {pid}) imported the script, and so came to start workers of its own
  cause      the start methods spawn and forkserver import the main script in each new process (certain)
  try        put what runs the training under `if __name__ == '__main__':`
             DataLoader(..., multiprocessing_context="fork")   on Linux: does not import the script again"""

_IN_SCRIPT = """\
the {who} process (pid {pid}) died before it could start a worker: {ended}

  where      in the main script or what that imports, which the start methods spawn and forkserver import anew
  cause      its own error is on stderr
  try        put what runs the training under `if __name__ == '__main__':`: then an import of the script runs nothing"""

_IN_MODULE = """\
the {who} process (pid {pid}) died before it could start a worker: {ended}

  where      while importing {module}, for dataset, collate_fn or worker_init_fn
  cause      its own error, if it had time for one, is on stderr
  try        python -c 'import {module}'"""
