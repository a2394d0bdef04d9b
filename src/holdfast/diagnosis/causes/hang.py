"""A sample took longer than `sample_timeout`, and the worker was ended.

Signs: the supervisor ended it past its deadline. The stack says where it was.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "hang"
_MOST_NATIVE = 4


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.HUNG:
        return None
    frames = signs.frames(evidence)
    at = f"it was in {frames[0]}" if frames else "where it was could not be seen"
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=summary(evidence),
        because=f"{limit(evidence)} passed, and {at}",
        where=signs.where(evidence),
        evidence=(*signs.stack_lines(evidence), *native_lines(evidence)),
        advice=_advice(evidence),
    )


def summary(evidence: Evidence) -> str:
    """ "hung for more than 30 s"."""
    timeout = evidence.sample_timeout_s
    return "hung" if timeout is None else f"hung for more than {wording.seconds(timeout)}"


def limit(evidence: Evidence) -> str:
    timeout = evidence.sample_timeout_s
    return "its time" if timeout is None else f"sample_timeout={timeout:g}"


def native_lines(evidence: Evidence) -> tuple[str, ...]:
    """What is known of the native code and the kernel."""
    stack = [wording.one_line(line, 120) for line in evidence.native_stack.splitlines() if line.startswith("    ")]
    lines = [f"native: {line}" for line in stack[:_MOST_NATIVE]]
    if evidence.waiting_in:
        lines.append(f"waiting in the kernel: {wording.one_line(evidence.waiting_in, 80)}")
    return tuple(lines)


def _advice(evidence: Evidence) -> tuple[str, ...]:
    longer = "DataLoader(..., sample_timeout=...)   a longer one, where a sample may really take that long"
    return "give what it waits for a timeout of its own (sockets, locks, subprocesses)", longer
