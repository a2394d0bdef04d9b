"""The worker ended itself: `sys.exit`, `os._exit`, or `exit()` in native code.

Signs: an exit status, and no signal. Where a traceback was the last on its stderr, and the status is 1, it is likely:
an exception that nobody caught ends a process in the same way.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "exit by user code"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.has_exited_by_itself(evidence) or evidence.is_cut_off:
        return None
    printed = signs.last_exception_printed(evidence) if signs.died_of_exception(evidence)[1] else ""
    raised = ", or an exception that nobody caught" if printed else ""
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY if printed else Confidence.CERTAIN,
        summary=f"exited with status {evidence.exit_code}",
        because=f"the code it ran ended the process: sys.exit(), os._exit(), or exit() in native code{raised}",
        where=signs.where(evidence),
        evidence=(
            f"exit status {evidence.exit_code}, no signal",
            *([f"last on its stderr: {printed}"] if printed else []),
        ),
        advice=(
            "raise an exception instead of ending the process: it arrives in the training loop, with its traceback",
            "grep -rnE 'sys\\.exit|os\\._exit|\\bexit\\(' .   finds the calls in Python files",
        ),
    )
