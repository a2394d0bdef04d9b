"""The script starts workers while a worker imports it: it has no `if __name__ == "__main__":`.

Signs: multiprocessing's own words, "before the current process has finished its bootstrapping phase".

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "missing main guard"
_WORDS = "before the current process has finished its bootstrapping phase"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    raised = evidence.raised.message if evidence.raised is not None else ""
    text = " ".join(f"{raised} {evidence.stderr_tail}".split())
    if _WORDS not in text:
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary='failed because the script has no `if __name__ == "__main__":`',
        because="under spawn and forkserver a worker imports the script, and so ran the line that starts workers",
        where=signs.where(evidence),
        evidence=(f'multiprocessing says: "{_WORDS}"',),
        advice=(
            'put what runs the training under: if __name__ == "__main__":',
            'DataLoader(..., multiprocessing_context="fork")   on Linux: does not import the script again',
        ),
    )
