"""A process had no descriptor left for one more file, socket or shared tensor.

Signs: EMFILE (the process's limit) or ENFILE (the machine's), or "received 0 items of ancdata", which is what is left
of a message whose descriptors did not fit: likely, for a remote service may say the same of itself. It is certain where
the process was seen to hold as many as its limit allows, and ruled out where it held far fewer. A worker may also have
died of such an exception, and printed it.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno
import re

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "too many open files"
_MACHINE = "Too many open files in system"
_PROCESS = "Too many open files"
_ANCDATA = "received 0 items of ancdata"
_HELD = re.compile(r"(\d+) of (\d+)\b")
_FEW = 0.5  # of the limit: who was refused one may have closed some on the way out, but not half of them
_ADVICE = (
    "close what the dataset opens: with open(path) as file, and the same for images, archives and sockets",
    "ulimit -n 65536   in the shell that starts the program",
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    raised = evidence.raised
    if raised is None:
        return _died_of_it(evidence)
    if _is_of_process(evidence):
        if contradiction(evidence):
            return None
        because = f"the process has no descriptor left (EMFILE){_holders(evidence)}"
    elif raised.errno == errno.ENFILE or _MACHINE in raised.message:
        because = "the machine has no descriptor left (ENFILE)"
    elif _ANCDATA in raised.message:
        because = "descriptors were sent to a process that had none left for them"
    else:
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if _is_of_process(evidence) and _is_at_limit(evidence) else Confidence.LIKELY,
        summary=f"had too many open files: {signs.exception_line(evidence, 120)}",
        because=because,
        where=signs.where(evidence),
        evidence=(*_count(evidence), *signs.stack_lines(evidence, 3)),
        advice=_ADVICE,
    )


def contradiction(evidence: Evidence) -> str:
    """What was measured against it, where an exception has the words."""
    held, limit = _measured(evidence)
    if not _is_of_process(evidence) or held is None or limit is None or held >= _FEW * limit:
        return ""
    return f"the process held {held} of {limit} descriptors when it raised: the words are about something else"


def _is_of_process(evidence: Evidence) -> bool:
    """Whether the exception has the words, or the number, of a process that has none left."""
    raised = evidence.raised
    if raised is None or raised.errno == errno.ENFILE or _MACHINE in raised.message:
        return False
    return raised.errno == errno.EMFILE or _PROCESS in raised.message


def _is_at_limit(evidence: Evidence) -> bool:
    held, limit = _measured(evidence)
    return held is not None and limit is not None and held >= limit


def _measured(evidence: Evidence) -> tuple[int | None, int | None]:
    """How many descriptors the process held, and may hold."""
    found = _HELD.match(evidence.open_files_held)
    return (int(found[1]), int(found[2])) if found else (evidence.open_files, evidence.open_files_limit)


def _died_of_it(evidence: Evidence) -> Diagnosis | None:
    """In the dataset's code at the end of the process, or in ours, where memory for a batch was to be received."""
    said, is_last = signs.died_of_exception(evidence)
    if _PROCESS not in said:
        return None
    whose = "the machine has no descriptor left (ENFILE)" if _MACHINE in said else "the process had none left (EMFILE)"
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY if is_last else Confidence.POSSIBLE,
        summary=f"had too many open files: {wording.one_line(said, 120)}",
        because=whose,
        evidence=(f"on its stderr: {wording.one_line(said, 400)}", f"exit status {evidence.exit_code}, no signal"),
        advice=_ADVICE,
    )


def _holders(evidence: Evidence) -> str:
    """In the cause itself: that is what an exception of the dataset's own shows of it, in its notes."""
    return f", it holds {evidence.open_files_held}" if evidence.open_files_held else ""


def _count(evidence: Evidence) -> tuple[str, ...]:
    if evidence.open_files_held or evidence.open_files is None:  # the one is in the cause
        return ()
    limit = "" if evidence.open_files_limit is None else f" of {evidence.open_files_limit}"
    return (f"open in the process: {evidence.open_files}{limit}",)
