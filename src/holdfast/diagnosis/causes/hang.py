"""A sample took longer than `sample_timeout`, and the worker was ended.

Signs: the supervisor ended it past its deadline. The stack says where it was.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "hang"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.HUNG:
        return None
    frames = signs.frames_seen(evidence)
    at = f"it was in {frames[0]}" if frames else "where it was could not be seen"
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=signs.hung(evidence),
        because=f"{_limit(evidence)} passed, and {at}",
        where=signs.where(evidence),
        evidence=(*signs.stack_lines(evidence), *signs.native_lines(evidence)),
        advice=_advice(),
    )


def _limit(evidence: Evidence) -> str:
    timeout = evidence.sample_timeout_s
    return "its time" if timeout is None else f"sample_timeout={timeout:g}"


def _advice() -> tuple[str, ...]:
    longer = "DataLoader(..., sample_timeout=...)   a longer one, where a sample may really take that long"
    return "give what it waits for a timeout of its own (sockets, locks, subprocesses)", longer
