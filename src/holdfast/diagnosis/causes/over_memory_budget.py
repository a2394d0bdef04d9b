"""Workers and batches together took more memory than the loader's `memory_budget` allows.

Signs: the supervisor added up what the workers have of their own, and what the slots of batches take, saw that it was
past the budget, and ended the worker that had the most.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast import words
from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "over memory_budget"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.OVER_BUDGET:
        return None
    budget = words.limit(evidence.memory_budget_bytes or 0)
    own = f"this worker had {words.size(evidence.memory_used_bytes or 0)} of its own, the most of them"
    growth = wording.growth(evidence.memory, evidence.memory_at_start_bytes)
    lines = (own, evidence.memory_needs, growth)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=f"was ended: workers and batches had more than memory_budget ({budget})",
        because="what all workers have of their own, and the slots of batches, came to more than the budget",
        where=signs.where(evidence),
        evidence=tuple(line for line in lines if line),
        advice=(
            "DataLoader(..., memory_budget=...)   a larger one, if the machine has it",
            "use a smaller batch_size: one batch, and what loading it takes, must fit",
        ),
    )
