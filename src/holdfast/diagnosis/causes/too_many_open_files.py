"""A process had no descriptor left for one more file, socket or shared tensor.

Signs: EMFILE (the process's limit) or ENFILE (the machine's), or "received 0 items of ancdata", which is what is left
of a message whose descriptors did not fit.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "too many open files"
_MACHINE = "Too many open files in system"
_PROCESS = "Too many open files"
_ANCDATA = "received 0 items of ancdata"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    raised = evidence.raised
    if raised is None:
        return None
    if raised.errno == errno.ENFILE or _MACHINE in raised.message:
        because = "the machine has no descriptor left (ENFILE)"
    elif raised.errno == errno.EMFILE or _PROCESS in raised.message:
        because = f"the process has no descriptor left (EMFILE){_holders(evidence)}"
    elif _ANCDATA in raised.message:
        because = "descriptors were sent to a process that had none left for them"
    else:
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY if _ANCDATA in raised.message else Confidence.CERTAIN,
        summary=f"had too many open files: {signs.exception_line(evidence, 120)}",
        because=because,
        where=signs.where(evidence),
        evidence=(*_count(evidence), *signs.stack_lines(evidence, 3)),
        advice=(
            "close what the dataset opens: with open(path) as file, and the same for images, archives and sockets",
            "ulimit -n 65536   in the shell that starts the program",
        ),
    )


def _holders(evidence: Evidence) -> str:
    """In the cause itself: that is what an exception of the dataset's own shows of it, in its notes."""
    return f", it holds {evidence.open_files_held}" if evidence.open_files_held else ""


def _count(evidence: Evidence) -> tuple[str, ...]:
    if evidence.open_files_held or evidence.open_files is None:  # the one is in the cause
        return ()
    limit = "" if evidence.open_files_limit is None else f" of {evidence.open_files_limit}"
    return (f"open in the process: {evidence.open_files}{limit}",)
