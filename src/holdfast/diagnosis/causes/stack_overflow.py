"""The stack overflowed: a recursion that went too deep, or a large array on the stack.

Signs: SIGSEGV at an address close to the stack pointer and at the end of the stack's room, or in its guard page. Of a
thread other than the first, as a worker's is if a thread forked it, the room is not known: there it is likely.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast import words
from holdfast.diagnosis import python_frames, signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, Frame, Mapping

NAME = "stack overflow"
_PAGE = 4096
_CLOSE = 16 * _PAGE  # a function with large local arrays moves the stack pointer this far before it touches them
_GAP = 256 * _PAGE  # the kernel keeps this free below the stack
_UNLIMITED = 1 << 40


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.is_crash_by(evidence, wording.SIGSEGV):
        return None
    frame = signs.frame_of(evidence)
    if frame is None:
        return _diagnosis(evidence, Confidence.CERTAIN) if _is_windows_overflow(evidence) else None
    if frame.code <= 0 or frame.address is None or abs(frame.address - frame.stack_pointer) > _CLOSE:
        return None
    confidence = _confidence(evidence, frame, frame.address)
    return None if confidence is None else _diagnosis(evidence, confidence)


def _is_windows_overflow(evidence: Evidence) -> bool:
    return evidence.exit_code is not None and evidence.exit_code & 0xFFFFFFFF == signs.WINDOWS_STACK_OVERFLOW


def _confidence(evidence: Evidence, frame: Frame, address: int) -> Confidence | None:
    mapping = signs.mapping_at(evidence, address)
    if mapping is not None and mapping.permissions.startswith("---"):
        return Confidence.CERTAIN  # a guard page
    stack = next((mapping for mapping in evidence.mappings if mapping.path == "[stack]"), None)
    if stack is None:
        is_at_pointer = abs(address - frame.stack_pointer) <= _PAGE
        return Confidence.LIKELY if is_at_pointer and mapping is None else None
    limit = evidence.stack_limit_bytes
    if not _is_of_first_thread(stack, limit, frame.stack_pointer):
        return Confidence.LIKELY if mapping is None else None
    used = stack.end - address  # the mapping was noted earlier, and has grown since: only its end is sure
    if limit is not None and 0 < limit < _UNLIMITED:
        return Confidence.CERTAIN if limit - _CLOSE <= used <= limit + _GAP else None
    return Confidence.LIKELY if mapping is None and address < stack.start else None


def _is_of_first_thread(stack: Mapping, limit: int | None, stack_pointer: int) -> bool:
    """Whether the stack pointer is in, or just below, the room that the kernel gives to the first thread's stack."""
    room = limit if limit is not None and 0 < limit < _UNLIMITED else stack.end
    return stack.end - room - _GAP <= stack_pointer <= stack.end


def _diagnosis(evidence: Evidence, confidence: Confidence) -> Diagnosis:
    frame, deep = signs.frame_of(evidence), python_frames.recursion(signs.frames(evidence))
    limit = evidence.stack_limit_bytes
    is_known = confidence is Confidence.CERTAIN and limit is not None and 0 < limit < _UNLIMITED
    room = f" of {words.size(limit or 0)}" if is_known else ""
    lines = () if frame is None else (f"address {frame.address or 0:#x}, stack pointer {frame.stack_pointer:#x}",)
    return Diagnosis(
        cause=NAME,
        confidence=confidence,
        summary="died of a stack overflow",
        because=f"the stack{room} was used up by {_by(evidence, str(deep) if deep else '')}",
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *lines),
        advice=(
            "end the recursion, or make it a loop; sys.setrecursionlimit does not make the stack larger",
            "ulimit -s 65532   in the shell that starts the program: a stack of 64 MB",
        ),
    )


def _by(evidence: Evidence, deep: str) -> str:
    place = signs.place_of(evidence)
    if deep:
        return f"a recursion through {deep}"
    return f"native code in {signs.native(place)}" if place is not None else "native code: Python's stack is not deep"
