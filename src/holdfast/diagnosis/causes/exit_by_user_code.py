"""The worker ended itself: `sys.exit`, `os._exit`, or `exit()` in native code.

Signs: an exit status, and no signal.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "exit by user code"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.has_exited_by_itself(evidence):
        return None
    printed = signs.last_exception_printed(evidence)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=f"exited with status {evidence.exit_code}",
        because="the code it ran ended the process: sys.exit(), os._exit(), or exit() in native code",
        where=signs.where(evidence),
        evidence=(f"exit status {evidence.exit_code}, no signal", *([f"on its stderr: {printed}"] if printed else [])),
        advice=(
            "raise an exception instead of ending the process: it arrives in the training loop, with its traceback",
            "grep -rnE 'sys\\.exit|os\\._exit|\\bexit\\(' .   finds the calls in Python files",
        ),
    )
