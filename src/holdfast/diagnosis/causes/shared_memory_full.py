"""There was no room left in shared memory (/dev/shm), which containers often have only 64 MB of.

Signs: SIGBUS with BUS_ADRERR at an address in a mapping of a file in /dev/shm, on another tmpfs, or of a memfd; or
ENOSPC, in Python's or torch's words, for such a file: likely. If that tmpfs is still full just after, it is certain.
Where the file at the address is not known, a full /dev/shm makes it likely; where not even the address is, it is
possible only.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno
import re

from holdfast import words
from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "shared memory full"
_IN_WORDS = re.compile(r"/dev/shm|/run/shm|</?torch_|shared memory|memfd|<filename not specified>")
_NO_SPACE = "No space left on device"
_FULL_BELOW_BYTES = 1 << 20


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if signs.is_crash_by(evidence, wording.SIGBUS) and not signs.sent_itself(evidence):
        return _of_bus_error(evidence)
    raised = evidence.raised
    if evidence.ending is not Ending.RAISED or raised is None:
        return None
    text = f"{raised.message} {raised.filename}"
    if (raised.errno == errno.ENOSPC or _NO_SPACE in text) and _IN_WORDS.search(text):
        line = signs.exception_line(evidence)
        because = f"a file in shared memory was refused the space: {line}"
        return _diagnosis(evidence, _confidence_in_words(evidence), f"raised {line}", because)
    return None


def _of_bus_error(evidence: Evidence) -> Diagnosis | None:
    if signs.frame_of(evidence) is None:
        because = "a bus error is how a full shared memory shows itself; the address was not seen"
        return _diagnosis(evidence, Confidence.POSSIBLE, "died of a bus error", because)
    if signs.is_bus_error_nowhere(evidence):
        return _of_full_shared_memory(evidence)
    hit = signs.bus_error_in(evidence)
    if hit is None:
        return None
    mapping, position = hit
    if not signs.is_shared_memory(evidence, mapping) or signs.is_beyond_end(evidence, position):
        return None
    because = f"there was no room for a page of {wording.one_line(mapping.path, 120)}, which is shared memory"
    return _diagnosis(evidence, _confidence(evidence), "died of a bus error: shared memory is full", because)


def _of_full_shared_memory(evidence: Evidence) -> Diagnosis | None:
    """Which file was hit is not known; what counts is how much is free just after."""
    free = evidence.shared_memory_free_bytes
    if free is None or free >= _FULL_BELOW_BYTES:
        return None
    because = "there was no room for a page of a mapped file, and shared memory is full"
    return _diagnosis(evidence, Confidence.LIKELY, "died of a bus error: shared memory is full", because)


def _confidence(evidence: Evidence) -> Confidence:
    """Full just after: certain. Room for more than the worker can have left by its death: possible only."""
    free, mount = evidence.shared_memory_free_bytes, evidence.shared_memory_mount.rstrip("/")
    if free is None or not mount:
        return Confidence.LIKELY
    given_back = sum(each.end - each.start for each in evidence.mappings if each.path.startswith(f"{mount}/"))
    if free < _FULL_BELOW_BYTES:
        return Confidence.CERTAIN
    return Confidence.LIKELY if free < given_back + _FULL_BELOW_BYTES else Confidence.POSSIBLE


def _confidence_in_words(evidence: Evidence) -> Confidence:
    """Of an exception. Room that is left says nothing against it: it may have asked for more than that."""
    free = evidence.shared_memory_free_bytes
    return Confidence.CERTAIN if free is not None and free < _FULL_BELOW_BYTES else Confidence.LIKELY


def _diagnosis(evidence: Evidence, confidence: Confidence, summary: str, because: str) -> Diagnosis:
    return Diagnosis(
        cause=NAME,
        confidence=confidence,
        summary=summary,
        because=because,
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *_room(evidence)),
        advice=_advice(evidence.shared_memory_mount),
    )


def _advice(mount: str) -> tuple[str, ...]:
    if mount not in ("", "/dev/shm"):
        there = wording.one_line(mount, 80)
        return f"mount -o remount,size=8g {there}   as root", f"df -h {there}; ls -lS {there}   what fills it"
    return (
        "docker run --shm-size=8g ...   or --ipc=host; in Kubernetes an emptyDir with medium: Memory on /dev/shm",
        "df -h /dev/shm; ls -lS /dev/shm   what fills it: files left by programs that were killed can be removed",
    )


def _room(evidence: Evidence) -> tuple[str, ...]:
    size, free = evidence.shared_memory_bytes, evidence.shared_memory_free_bytes
    if size is None or free is None:
        return ()
    mount = wording.one_line(evidence.shared_memory_mount, 80) or "shared memory"
    return (f"{mount} has {words.size(size)}, of which {words.size(free)} were free just after",)
