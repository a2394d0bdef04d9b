"""A forked worker copies the memory of its parent page by page, because it writes to it. It is alive.

Signs: pages that are its alone have become many, and they are not its own memory, but that which it had when it was
forked. To read a Python object is to write to it: its reference count changes.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast import words
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "copy-on-write growth"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    growth = evidence.growth
    if evidence.ending is not Ending.GREW or growth is None or not growth.copied_bytes:
        return None
    copied = words.size(growth.copied_bytes)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=f"has copied {copied} of the memory it was forked with",
        because=f"{copied} that it shared with its parent are its alone by now, after "
        f"{words.plural(growth.samples, 'sample')}: to read a Python object changes its reference count, which "
        f"copies its page",
        advice=(
            "holdfast.share(data)   keeps a list, dict or array that the dataset holds in one copy for all workers",
            "keep what is many in a numpy array or a tensor, not in a list or dict of Python objects",
        ),
    )
