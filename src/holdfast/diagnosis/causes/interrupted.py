"""A signal handler of the program raised an exception inside `next()`, and the loop went on: all workers started anew.

Signs: the iterator saw it. What was being said to the workers at that moment may have been cut off halfway.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "interrupted by a signal handler"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.INTERRUPTED:
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary="was interrupted by a signal handler that raised inside next()",
        because="an exception may leave what is said to the workers half said: all of them were started anew",
        evidence=("a signal handler of this process raised an exception inside next(), and next() was called again",),
        advice=(
            "have the handler set a flag, and look at it between two batches: no worker has to start anew then",
            "signal.pthread_sigmask(signal.SIG_BLOCK, {...})   around next(), where the handler must raise",
        ),
    )
