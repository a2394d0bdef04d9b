"""A segmentation fault: native code used an address that it may not use.

Signs: SIGSEGV that no other process sent. The page fault's error code says whether it was a read, a write or an
execution. Where the registers were not recorded, so that it is not known who sent it, it is likely only.

Pure. Runs in: main process.
"""

from __future__ import annotations

import re

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, Frame

NAME = "segmentation fault"
_NULL_BELOW = 0x10000
_WRITE, _FETCH = 2, 16
_EVERYBODYS = re.compile(
    r"(libc|libm|libpthread|ld-linux[\w-]*|ld-musl[\w-]*|libstdc\+\+|libgcc_s|libpython[\d.]*)[.-]"
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if not signs.is_crash_by(evidence, wording.SIGSEGV):
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if _is_proven(evidence) else Confidence.LIKELY,
        summary="died of a segmentation fault",
        because=_because(evidence),
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *_mapping_line(evidence)),
        advice=signs.TO_ITSELF if signs.sent_itself(evidence) else _advice(evidence),
    )


def _is_proven(evidence: Evidence) -> bool:
    """Without the kernel's frame it may as well have been a kill -SEGV; a status of Windows says it by itself."""
    is_status = evidence.exit_code is not None and evidence.exit_code > 0
    return is_status or signs.frame_of(evidence) is not None


def _because(evidence: Evidence) -> str:
    frame, place = signs.frame_of(evidence), signs.place_of(evidence)
    if frame is None:
        return "native code used an address that it may not use"
    if signs.sent_itself(evidence):
        return "the worker sent SIGSEGV to itself: no access failed"
    code = f" in {signs.native(place)}" if place is not None else ""
    if frame.code == wording.SI_KERNEL or frame.address is None:
        return f"native code{code} used an address that no program can have; the processor does not tell which"
    return f"{_access(frame)} of address {frame.address:#x}{_kind(frame)}{code}"


def _access(frame: Frame) -> str:
    return "execution" if frame.error_code & _FETCH else "write" if frame.error_code & _WRITE else "read"


def _kind(frame: Frame) -> str:
    if frame.address is not None and 0 <= frame.address < _NULL_BELOW:
        return " (a null pointer)"
    return " (mapped, but not for that)" if frame.code == wording.SEGV_ACCERR else " (nothing is mapped there)"


def _mapping_line(evidence: Evidence) -> tuple[str, ...]:
    frame = signs.frame_of(evidence)
    mapping = signs.mapping_at(evidence, frame.address) if frame is not None and frame.code > 0 else None
    if mapping is None:
        return ()
    return (f"the address is in {wording.one_line(mapping.path, 120) or 'anonymous memory'} ({mapping.permissions})",)


def _advice(evidence: Evidence) -> tuple[str, ...]:
    place = signs.place_of(evidence)
    library = wording.one_line(wording.file_name(place.library), 80) if place is not None and place.library else ""
    if _EVERYBODYS.match(library):
        library = ""  # it was called with an address that its caller got wrong
    update = (
        f"update or rebuild what {library} belongs to" if library else "update the native libraries the dataset uses"
    )
    return (
        f"{update}: a segmentation fault is a bug of native code, or of data it does not check",
        "python -X dev your_script.py   checks more, and may show the bug earlier",
    )
