"""Code in the worker closed descriptors that it had not opened, and with them the worker's channel to the main process.

Signs: the worker could not send a batch, and found that the descriptor of its channel was closed or led elsewhere. Then
it ends with a status, but no code of the user's has ended it.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "descriptors closed"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not evidence.is_cut_off or not signs.has_exited_by_itself(evidence):
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary="lost its channel to the main process, whose descriptor was closed in the worker",
        because="code in the worker closed descriptors that it had not opened, as os.closerange() does",
        where=signs.where(evidence),
        evidence=("the worker looked at the descriptor of its channel: it is closed, or leads elsewhere by now",),
        advice=(
            "grep -rnE 'closerange|os\\.close\\(|daemonize' .   finds the calls in Python files",
            "close only what was opened here, by its own number; subprocess.Popen closes the rest by itself in a child",
        ),
    )
