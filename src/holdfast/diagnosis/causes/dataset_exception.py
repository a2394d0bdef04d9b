"""The dataset, its transforms, `collate_fn` or the sampler raised an exception; the worker is alive.

Signs: an exception arrived from the worker, or was raised in the main process, and it has none of the signs of a more
special cause.

Pure. Runs in: main process.
"""

from __future__ import annotations

import errno

from holdfast.diagnosis import signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "dataset exception"
_OF_MEMORY = ("MemoryError", "can't allocate memory", "Unable to allocate")


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.RAISED or evidence.raised is None:
        return None
    line = signs.exception_line(evidence)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=f"raised {line}",
        because=f"the code that loads the data raised {line}",
        where=signs.where(evidence),
        evidence=signs.stack_lines(evidence),
        advice=_advice(evidence),
    )


def _advice(evidence: Evidence) -> tuple[str, ...]:
    raised = evidence.raised
    assert raised is not None
    if any(words in f"{raised.type} {raised.message}" for words in _OF_MEMORY):
        return ("use fewer workers or smaller batches: every worker holds its own samples and batch in memory",)
    if raised.errno == errno.ENOSPC:
        return ("df -h   which disk is full",)
    if signs.is_of(raised, "OSError"):
        return ("DataLoader(..., retry_on=(OSError,))   where the storage fails now and then",)
    return ("correct the sample, or the code that cannot read it",)
