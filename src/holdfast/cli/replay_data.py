"""What `holdfast replay --json` prints. Its schema is docs/schemas/replay.json.

Runs in: main process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.replay_text import wanted
from holdfast.records.reader import Run
from holdfast.tasks.replay.case import Case

if TYPE_CHECKING:
    from holdfast.tasks.replay.guarded import Order, Outcome
    from holdfast.tasks.replay.watched import Loaded


def list_data(run: Run) -> dict[str, Any]:
    """The incidents of a run."""
    return {
        "run": run.id,
        "target": _text_or_none(run.start.get("target")),
        "damaged_lines": run.damaged_lines,
        "incidents": [
            {
                "id": f"{run.id}.{entry.get('number')}",
                "cause": str(entry.get("cause") or "unknown"),
                "summary": str(entry.get("summary") or ""),
                "done": str(entry.get("done") or ""),
                "sample": None if entry.get("sample_index") is None else str(entry["sample_index"]),
            }
            for entry in run.incidents
        ],
    }


def data(case: Case, target: str, order: Order, outcome: Outcome, peak_bytes: int | None) -> dict[str, Any]:
    """Everything, for `--json`."""
    return {
        "incident": case.id,
        "dataset": target,
        "sample": wanted(order),
        "then": {"cause": case.cause, "summary": case.summary, "time": case.time},
        "limits": {
            "memory_limit_bytes": case.limits.memory_limit_bytes,
            "sample_timeout_s": case.limits.sample_timeout_s,
            "are_known": case.knows_limits,
        },
        "start_method": order.start_method,
        "seed": order.seed,
        "outcome": "loaded" if outcome.error is None else "failed",
        "loaded": [_loaded_data(each) for each in outcome.loaded],
        "failure": None if outcome.error is None else _failure_data(case, outcome),
        "memray": None if order.memray_file is None else {"file": order.memray_file, "peak_bytes": peak_bytes},
    }


def _loaded_data(loaded: Loaded) -> dict[str, Any]:
    parts = [
        {
            "path": part.path,
            "type": part.type,
            "dtype": part.dtype,
            "shape": None if part.shape is None else [*part.shape],
            "bytes": part.nbytes,
            "length": part.length,
        }
        for part in loaded.parts
    ]
    return {"seconds": loaded.seconds, "peak_bytes": loaded.peak_bytes, "parts": parts}


def _failure_data(case: Case, outcome: Outcome) -> dict[str, Any]:
    noted, error = outcome.incident, outcome.error
    return {
        "type": type(error).__name__,
        "message": str(error),
        "cause": noted.cause if noted else None,
        "is_same_cause": noted is not None and noted.cause == case.cause,
        "confidence": noted.confidence if noted else None,
        "summary": noted.summary if noted else None,
        "because": noted.because if noted else None,
        "where": noted.where if noted else None,
        "evidence": noted.evidence if noted else None,
        "advice": [*noted.advice] if noted else [],
    }


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
