"""A bus error: the program read a mapped file beyond its end, or a part of it that could not be read.

Signs: SIGBUS with BUS_ADRERR at an address in the mapping of a file. If the file is now shorter than the place that
was read, that proves it; if it is on a disk, it is likely. A file that was mapped only a moment before, for the same
batch, is not known: then it is possible.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, Mapping

NAME = "bus error on a truncated file"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if signs.is_bus_error_nowhere(evidence):
        return _of_unknown_file(evidence)
    hit = signs.bus_error_in(evidence)
    if hit is None:
        return None
    mapping, position = hit
    is_beyond = signs.is_beyond_end(evidence, position)
    if signs.is_shared_memory(evidence, mapping) and not is_beyond:
        return None
    path = wording.one_line(mapping.path, 160)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if is_beyond else Confidence.LIKELY,
        summary=f"died of a bus error in the mapped file {wording.one_line(wording.file_name(mapping.path), 80)}",
        because=_because(evidence, path, position, is_beyond),
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), f"the address is byte {position} of {path}"),
        advice=_advice(mapping),
    )


def _of_unknown_file(evidence: Evidence) -> Diagnosis:
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.POSSIBLE,
        summary="died of a bus error in a mapped file",
        because="a mapped file was used beyond its end, or its disk or server failed; which file it was is not known",
        where=signs.where(evidence),
        evidence=signs.signal_line(evidence),
        advice=(
            "ls -l   of the files that the line under `where` reads: are they as long as they should be?",
            "df -h   a full disk, or shared memory, does the same to a file that is written",
        ),
    )


def _because(evidence: Evidence, path: str, position: int, is_beyond: bool) -> str:
    if is_beyond and evidence.mapped_file_bytes is not None:
        return f"{path} has {evidence.mapped_file_bytes} bytes, and byte {position} of its mapping was used"
    return f"{path} was cut short while it was mapped, or its disk or server failed, or its disk was full"


def _advice(mapping: Mapping) -> tuple[str, ...]:
    path = mapping.path.removesuffix(" (deleted)")
    return (
        f"ls -l '{wording.one_line(path, 160)}'   is it as long as it should be? copy or write it again",
        "write data files under another name and rename them when complete: never over one that is in use",
    )
