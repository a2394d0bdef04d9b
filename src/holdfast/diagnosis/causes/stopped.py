"""The worker was stopped by a signal (SIGSTOP, Ctrl-Z) and nobody let it go on.

Signs: the kernel reports it as stopped, for more than ten seconds in which the supervisor itself runs.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "stopped"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.STOPPED:
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary="was stopped by a signal and not continued",
        because="a process sent it SIGSTOP or its like; which one the kernel does not tell",
        where=signs.where(evidence),
        evidence=("the kernel reports the process as stopped", *signs.stack_lines(evidence)),
        advice=(
            "find what stops processes here: a debugger, a job scheduler that suspends jobs, kill -STOP",
            "kill -CONT PID   lets a stopped process go on, if you stop workers on purpose",
        ),
    )
