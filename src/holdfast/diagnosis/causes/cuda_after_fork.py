"""CUDA was used in a worker that was forked from a process that had used CUDA before.

Signs: torch's own words, "Cannot re-initialize CUDA in forked subprocess", or CUDA's initialization error (3) in a
worker started by fork: in what was raised, or in the exception that the worker died of, if that was the last it wrote.
Words make it likely. What was caught and logged before a kill or a crash is no sign.

Pure. Runs in: main process.
"""

from __future__ import annotations

import re

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence

NAME = "CUDA used after fork"
_TORCH = "Cannot re-initialize CUDA in forked subprocess"
_CUDA = re.compile(
    r"CUDA(?: runtime| driver)? error:? (?:3\b|.{0,40}initialization error)"
    r"|cudaErrorInitializationError|CUDA_ERROR_NOT_INITIALIZED"
)


def diagnose(evidence: Evidence) -> Diagnosis | None:
    text, is_last = signs.died_of_exception(evidence)
    if evidence.raised is not None:
        text, is_last = evidence.raised.message, True
    if _TORCH not in text and not (signs.is_forked(evidence) and _CUDA.search(text)):
        return None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY if is_last else Confidence.POSSIBLE,
        summary="used CUDA, which does not work in a forked process",
        because="the main process had used CUDA before the worker was forked, and CUDA does not survive a fork",
        where=signs.where(evidence),
        evidence=(signs.exception_line(evidence) or f"on its stderr: {wording.one_line(text, 200)}",),
        advice=(
            "return CPU tensors from the dataset, and move the batch in the training loop: batch.to('cuda')",
            'DataLoader(..., multiprocessing_context="spawn")   where the workers must use CUDA',
        ),
    )
