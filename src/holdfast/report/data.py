"""A report as plain data, for `--json`: docs/schemas/report.json says what is in it. Pure.

Runs in: wherever reports are made.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from holdfast.report.incidents import Group, Incidents
from holdfast.report.memory import MemoryUse, Series
from holdfast.report.model import Report
from holdfast.report.pace import Pace


def data(report: Report) -> dict[str, Any]:
    """All that the page has."""
    head = report.headline
    return {
        "run": report.run_id,
        "started": report.started,
        "duration_s": report.duration_s,
        "outcome": head.outcome,
        "healthy": head.is_healthy,
        "title": head.title,
        "story": [told.words for told in head.story],
        "remedies": [dataclasses.asdict(remedy) for remedy in head.remedies],
        "warnings": [*report.warnings],
        "restarts": report.restarts,
        "workers": [dataclasses.asdict(worker) for worker in report.timeline.workers],
        "workers_not_shown": report.timeline.workers_not_shown,
        "memory": _memory(report.memory),
        "time": _time(report.pace),
        "incidents": _incidents(report.incidents),
        "skipped": {
            "total": report.losses.total,
            "samples": [dataclasses.asdict(one) for one in report.losses.skipped],
        },
        "facts": {fact.name: fact.value for fact in report.facts},
    }


def _memory(memory: MemoryUse) -> dict[str, Any]:
    return {
        "limit_bytes": memory.limit_bytes,
        "budget_bytes": memory.budget_bytes,
        "total_peak_bytes": memory.total_peak_bytes,
        "main": None if memory.main is None else _series(memory.main),
        "workers": [_series(one) for one in memory.workers],
        "workers_not_shown": memory.not_shown,
    }


def _series(series: Series) -> dict[str, Any]:
    """A point is [seconds since the start, bytes, pid]; pid 0 is that of the main process."""
    return {
        "name": series.name,
        "peak_bytes": series.peak_bytes,
        "limit_bytes": series.limit_bytes,
        "points": [[*point] for point in series.points],
    }


def _time(pace: Pace) -> dict[str, Any]:
    return {
        "samples": pace.samples,
        "batches": pace.batches,
        "waited_s": pace.waited_s,
        "waited_share": pace.waited_share,
        "stages": {f"{name}_s": seconds for name, seconds in pace.stages},
        "rates": [dataclasses.asdict(rate) for rate in pace.rates],
        "slowest": [dataclasses.asdict(slow) for slow in pace.slowest],
    }


def _incidents(incidents: Incidents) -> dict[str, Any]:
    return {
        "total": incidents.total,
        "groups": [_group(group) for group in incidents.groups],
        "not_shown": dict(incidents.not_shown),
        "left_out": dict(incidents.left_out),
    }


def _group(group: Group) -> dict[str, Any]:
    return dataclasses.asdict(group) | {"done": dict(group.done)}
