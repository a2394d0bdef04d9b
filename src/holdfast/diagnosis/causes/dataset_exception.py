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
_STARTING = "starting"  # there it is a failure before the first sample
_OF_MEMORY = ("MemoryError", "can't allocate memory", "Unable to allocate")


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.RAISED or evidence.raised is None or evidence.phase == _STARTING:
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
    if signs.NO_THREAD in raised.message or (raised.errno == errno.EAGAIN and "fork" in raised.traceback):
        return (
            "ulimit -u; cat /sys/fs/cgroup/pids.max   how many processes and threads are allowed here",
            "use fewer workers, or fewer threads in each: OMP_NUM_THREADS=1 in the environment",
        )
    if any(words in f"{raised.type} {raised.message}" for words in _OF_MEMORY):
        return ("use fewer workers or smaller batches: every worker holds its own samples and batch in memory",)
    if raised.errno == errno.ENOSPC:
        return ("df -h   which disk is full",)
    if signs.is_of(raised, "OSError"):
        return ("DataLoader(..., retry_on=(OSError,))   where the storage fails now and then",)
    return ("correct the sample, or the code that cannot read it",)
