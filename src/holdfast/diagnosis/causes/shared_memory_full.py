"""There was no room left in shared memory (/dev/shm), which containers often have only 64 MB of.

Signs: SIGBUS with BUS_ADRERR at an address in a mapping of a file in /dev/shm or of a memfd; or ENOSPC, in Python's
or torch's words, for such a file. A SIGBUS of which the address is not known makes it possible only.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno
import re

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
        return _diagnosis(evidence, Confidence.CERTAIN, f"raised {line}", f"the system refused the space: {line}")
    return None


def _of_bus_error(evidence: Evidence) -> Diagnosis | None:
    frame = signs.frame_of(evidence)
    if frame is None:
        because = "a bus error is how a full shared memory shows itself; the address was not seen"
        return _diagnosis(evidence, Confidence.POSSIBLE, "died of a bus error", because)
    mapping = signs.mapping_at(evidence, frame.address)
    if frame.code != wording.BUS_ADRERR or mapping is None or not signs.is_shared_memory(mapping):
        return None
    free = evidence.shared_memory_free_bytes
    is_seen = mapping.path.startswith("/dev/shm/") and free is not None and free < _FULL_BELOW_BYTES
    because = f"there was no memory for a page of {wording.one_line(mapping.path, 120)}, which is shared memory"
    confidence = Confidence.CERTAIN if is_seen else Confidence.LIKELY
    return _diagnosis(evidence, confidence, "died of a bus error: shared memory is full", because)


def _diagnosis(evidence: Evidence, confidence: Confidence, summary: str, because: str) -> Diagnosis:
    return Diagnosis(
        cause=NAME,
        confidence=confidence,
        summary=summary,
        because=because,
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *_room(evidence)),
        advice=(
            "docker run --shm-size=8g ...   or --ipc=host; in Kubernetes an emptyDir with medium: Memory on /dev/shm",
            "df -h /dev/shm; ls -lS /dev/shm   what fills it: files left by programs that were killed can be removed",
        ),
    )


def _room(evidence: Evidence) -> tuple[str, ...]:
    size, free = evidence.shared_memory_bytes, evidence.shared_memory_free_bytes
    if size is None or free is None:
        return ()
    return (f"/dev/shm has {wording.size(size)}, of which {wording.size(free)} were free just after",)
