"""Looks at runs that never were, for the tests of the live view. Needs no torch.

Runs in: the test process.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.records.live import LiveRun, LiveWorker
from holdfast.records.reader import Run

STARTED = 1_800_000_000.0

START = {
    "kind": "start",
    "time": STARTED,
    "script": "train.py",
    "dataset": "ImageFolder",
    "front": "DataLoader",
    "pid": 41822,
}


def a_run(run_id: str = "7f3a", *, is_alive: bool = True, **changes: Any) -> Run:
    """`start`, `incidents` and `end` may be given."""
    run = Run(
        id=run_id,
        path=Path(f"20270115T080000.000Z-{run_id}.jsonl"),
        start=START,
        incidents=(),
        readings=(),
        end=None,
        is_alive=is_alive,
        is_full=False,
        unknown=(),
        damaged_lines=0,
    )
    return replace(run, **changes)


def a_worker(worker_id: int = 0, **changes: Any) -> LiveWorker:
    worker = LiveWorker(worker_id, 100 + worker_id, "loading", 17, 2, 0.25, 1_200_000_000, None, 0)
    return replace(worker, **changes)


def a_look(run: Run | None = None, **changes: Any) -> LiveRun:
    look = LiveRun(
        run=run or a_run(),
        at_s=0.0,
        batches=100,
        samples=800,
        waited_s=3.0,
        restarts=0,
        skipped=0,
        workers=(a_worker(0), a_worker(1)),
        is_fresh=True,
    )
    return replace(look, **changes)


def an_incident(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "incident",
        "number": number,
        "time": STARTED + number,
        "worker_id": 1,
        "sample_index": 107,
        "cause": "hang",
        "summary": "hung for more than 1 s",
        "done": "skipped",
        **changes,
    }
