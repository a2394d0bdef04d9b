"""A sample needed more memory than the loader's `memory_limit` allows a worker, or its worker had kept too much before.

Signs: the supervisor saw the worker past its limit, and ended it; or, with a limit, Python, numpy or torch could not
allocate memory or start a thread, or C++ said std::bad_alloc. An exception makes it certain only if the worker was seen
to have more than the limit: how much was asked for is known only from words, which may be those of a remote service. If
both together are far less than the limit, that rules it out, as for a thread that a limit on processes forbids. Else it
is likely.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno
import re

from holdfast import words
from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "over memory_limit"
_IN_BYTES = re.compile(r"tried to allocate (\d+) bytes")
_IN_WORDS = re.compile(r"Unable to allocate (\d{1,15}(?:\.\d{0,9})?) ([KMGTPE]iB|bytes)")
_UNITS = {"bytes": 1} | {f"{letter}iB": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_STACK_BYTES = 8 << 20  # of a thread, mostly
_FAR_BELOW = 0.5
_BAD_ALLOC = "std::bad_alloc"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.memory_limit_bytes is None:
        return None
    limit = words.limit(evidence.memory_limit_bytes)
    if evidence.ending is Ending.OVER_LIMIT:
        return _told(evidence, f"had {_used(evidence)} of its own, over memory_limit ({limit})", _SEEN)
    if _was_refused(evidence) and not contradiction(evidence):
        had = f" when it had {_used(evidence)}" if evidence.memory_kept_bytes else ""
        return _told(
            evidence, f"asked for {_asked(evidence)}{had}, over memory_limit ({limit})", _REFUSAL, _confidence(evidence)
        )
    if signs.is_crash_by(evidence, wording.SIGABRT) and _BAD_ALLOC in evidence.stderr_tail:
        return _told(evidence, f"could get no more memory under memory_limit ({limit})", _ABORT, Confidence.LIKELY)
    return None


_SEEN = "its memory was past the limit when it was looked at, and it was ended before the kernel had to end anything"
_REFUSAL = "the memory that it asked for would have taken it past its limit, and was refused"
_KEPT = (
    "of what it may have, it had kept {} since earlier batches: it is not known to be this sample that needs too much"
)
_ABORT = "C++ could not allocate memory, which a worker with a limit is refused past it"


def _told(evidence: Evidence, summary: str, because: str, confidence: Confidence = Confidence.CERTAIN) -> Diagnosis:
    used = (
        f"of its own memory, above its start, it had {_used(evidence)}"
        if evidence.memory_used_bytes is not None
        else ""
    )
    growth = wording.growth(evidence.memory, evidence.memory_at_start_bytes)
    grew = growth if " grew " in growth else ""  # what did not grow was not what it was ended for
    kept = words.size(evidence.memory_kept_bytes) if evidence.memory_kept_bytes else ""
    lines = (used, grew, signs.exception_line(evidence), *signs.stack_lines(evidence, 3))
    return Diagnosis(
        cause=NAME,
        confidence=confidence,
        summary=summary,
        because=_KEPT.format(kept) if kept else because,
        where=signs.where(evidence),
        evidence=tuple(line for line in lines if line),
        advice=_ADVICE_IF_KEPT if kept else _ADVICE,
    )


_ADVICE = (
    "DataLoader(..., memory_limit=...)   a larger one, where a sample may really need that much",
    "load less at once: a part of the file, a smaller type (float32, uint8), fewer threads in a worker",
)
_ADVICE_IF_KEPT = (
    "look for what the dataset keeps: a cache without a bound, a list that only grows",
    "DataLoader(..., recycle_after=...)   replaces a worker between batches, before it has kept so much",
    "DataLoader(..., memory_limit=...)   a larger one, where a worker may really keep that much",
)


def _was_refused(evidence: Evidence) -> bool:
    raised = evidence.raised
    if raised is None or evidence.ending is not Ending.RAISED:
        return False
    is_error = signs.is_of(raised, "MemoryError") or raised.errno == errno.ENOMEM
    return is_error or any(words in raised.message for words in signs.NO_MEMORY)


def contradiction(evidence: Evidence) -> str:
    """What was measured against it, where memory was refused: that there was room for what was asked for."""
    used, asked, limit = evidence.memory_used_bytes, _asked_bytes(evidence), evidence.memory_limit_bytes
    if limit is None or used is None or asked is None or not _was_refused(evidence):
        return ""
    if used + asked >= _FAR_BELOW * limit:
        return ""
    return f"it had {_used(evidence)} of {words.limit(limit)} when it was refused {_asked(evidence)}"


def _confidence(evidence: Evidence) -> Confidence:
    used, limit = evidence.memory_used_bytes or 0, evidence.memory_limit_bytes or 0
    return Confidence.CERTAIN if used > limit and not _is_about_thread(evidence) else Confidence.LIKELY


def _is_about_thread(evidence: Evidence) -> bool:
    return evidence.raised is not None and signs.NO_THREAD in evidence.raised.message


def _asked(evidence: Evidence) -> str:
    """How much, in words, where the exception tells."""
    if _is_about_thread(evidence):
        return "a thread"
    found = _IN_WORDS.search(evidence.raised.message) if evidence.raised is not None else None
    if found:
        return f"{found[1].removesuffix('.')} {found[2]}"  # numpy writes "400. GiB"
    asked = _asked_bytes(evidence)
    return "more memory" if asked is None else words.size(asked)


def _asked_bytes(evidence: Evidence) -> int | None:
    """How much, where the exception tells, or of what size a thread's stack is."""
    text = evidence.raised.message if evidence.raised is not None else ""
    if match := _IN_BYTES.search(text):
        return int(match[1])
    if match := _IN_WORDS.search(text):
        return int(float(match[1]) * _UNITS[match[2]])
    return _STACK_BYTES if _is_about_thread(evidence) else None


def _used(evidence: Evidence) -> str:
    return words.size(evidence.memory_used_bytes or 0)
