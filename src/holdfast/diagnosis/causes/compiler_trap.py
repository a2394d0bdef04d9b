"""Native code ran into a trap that its compiler put there on purpose: a failed check, or a place it must never reach.

Signs: SIGILL at `ud2` or its kin. The CPU lacks nothing: the program stopped itself.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "compiler trap"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    place = signs.place_of(evidence)
    if not signs.is_crash_by(evidence, wording.SIGILL) or place is None or not place.is_trap:
        return None
    instruction = wording.one_line(place.instruction, 40) or "ud2"
    library = wording.one_line(wording.file_name(place.library), 60)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary="died of a trap that a compiler put into its native code",
        because=f"{instruction} is no missing CPU feature: a check failed, or code was reached that never must be",
        where=signs.where(evidence),
        evidence=signs.signal_line(evidence),
        advice=(
            f"report it to the authors of {library or 'that code'}, with the sample",
            "a build with -fsanitize=undefined,address names the check that failed",
        ),
    )
