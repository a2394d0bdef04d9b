"""A bus error: the program read a mapped file beyond its end, or a part of it that could not be read.

Signs: SIGBUS with BUS_ADRERR at an address in the mapping of an ordinary file. If the file is now shorter than the
place that was read, that proves it.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, Mapping

NAME = "bus error on a truncated file"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    frame = signs.frame_of(evidence)
    if not signs.is_crash_by(evidence, wording.SIGBUS) or frame is None or frame.code != wording.BUS_ADRERR:
        return None
    mapping = signs.mapping_at(evidence, frame.address)
    if mapping is None or not mapping.path.startswith("/") or signs.is_shared_memory(mapping) or frame.address is None:
        return None
    position = frame.address - mapping.start + mapping.offset
    is_beyond = evidence.mapped_file_bytes is not None and position >= evidence.mapped_file_bytes
    path = wording.one_line(mapping.path, 160)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if is_beyond else Confidence.LIKELY,
        summary=f"died of a bus error in the mapped file {wording.one_line(wording.file_name(mapping.path), 80)}",
        because=_because(evidence, path, position, is_beyond),
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), f"address {frame.address:#x} is byte {position} of {path}"),
        advice=_advice(mapping),
    )


def _because(evidence: Evidence, path: str, position: int, is_beyond: bool) -> str:
    if is_beyond and evidence.mapped_file_bytes is not None:
        return f"{path} has {evidence.mapped_file_bytes} bytes, and byte {position} of its mapping was used"
    return f"{path} was cut short while it was mapped, or that part of it could not be read from its disk or server"


def _advice(mapping: Mapping) -> tuple[str, ...]:
    path = mapping.path.removesuffix(" (deleted)")
    return (
        f"ls -l '{wording.one_line(path, 160)}'   is it as long as it should be? copy or write it again",
        "write data files under another name and rename them when complete: never over one that is in use",
    )
