"""A floating point exception, which is nearly always an integer that native code divided by zero.

Signs: SIGFPE that no other process sent; its code says which operation failed.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "floating point exception"
_OPERATIONS = {
    1: "an integer was divided by zero, or the quotient does not fit",
    2: "an integer overflowed",
    3: "a floating point number was divided by zero, in code that asked to be stopped for it",
    4: "a floating point number overflowed, in code that asked to be stopped for it",
    5: "a floating point number underflowed, in code that asked to be stopped for it",
    6: "a floating point result was inexact, in code that asked to be stopped for it",
    7: "a floating point operation was invalid, in code that asked to be stopped for it",
    8: "a subscript was out of range",
}


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.is_crash_by(evidence, wording.SIGFPE):
        return None
    frame = signs.frame_of(evidence)
    operation = _OPERATIONS.get(frame.code) if frame is not None else None
    if signs.sent_itself(evidence):
        operation = "the worker sent SIGFPE to itself: no operation failed"
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if operation else Confidence.LIKELY,
        summary="died of a floating point exception",
        because=operation or "native code divided an integer by zero: which operation it was could not be seen",
        where=signs.where(evidence),
        evidence=signs.signal_line(evidence),
        advice=(
            "look for an empty sample: a width, length or count of 0 that native code divides by",
            "check sizes in Python before calling the native code, and raise a ValueError there",
        ),
    )
