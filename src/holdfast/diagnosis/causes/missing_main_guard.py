"""The script starts workers while a worker imports it: it has no `if __name__ == "__main__":`.

Signs: the process of ours that imported the script came to start workers of its own; or multiprocessing's own words,
"before the current process has finished its bootstrapping phase", in the exception that ended a worker while it was
starting, which make it likely.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "missing main guard"
_STARTING = "starting"
_WORDS = "before the current process has finished its bootstrapping phase"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.phase != _STARTING:
        return None
    text, is_last = signs.died_of_exception(evidence)
    if evidence.ending is Ending.RAISED and evidence.raised is not None:
        text, is_last = evidence.raised.message, True
    if _WORDS not in " ".join(text.split()):
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY if is_last else Confidence.POSSIBLE,
        summary='failed because the script has no `if __name__ == "__main__":`',
        because="under spawn and forkserver a worker imports the script, and so ran the line that starts workers",
        where=signs.where(evidence),
        evidence=(f'multiprocessing says: "{_WORDS}"',),
        advice=(
            'put what runs the training under: if __name__ == "__main__":',
            'DataLoader(..., multiprocessing_context="fork")   on Linux: does not import the script again',
        ),
    )
