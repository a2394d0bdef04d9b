"""Jobs as a loader makes them, with everything at its default, and the row that their fetchers write.

Runs in: the test process.
"""

from __future__ import annotations

from typing import Any

from holdfast.workers.attempts import Care
from holdfast.workers.job import Job
from holdfast.workers.messages import Epoch


def job(dataset: Any, *, sample_seed: int | None = None, care: Care | None = None, **changes: Any) -> Job:
    facts: dict[str, Any] = {
        "collate_fn": list,
        "worker_init_fn": None,
        "is_iterable": False,
        "auto_collation": True,
        "drop_last": False,
        "base_seed": 1,
        "num_workers": 1,
        "sample_timeout_s": None,
        "max_restarts": 3,
        "has_been_ready": False,
    }
    return Job(dataset=dataset, epoch=Epoch(None, sample_seed), care=care or Care(), **{**facts, **changes})


def where(doing: str) -> str:
    """What a worker says of where it was."""
    return f"in a test, {doing}"
