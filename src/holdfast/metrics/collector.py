"""The metrics as prometheus-client wants them: looked at when somebody scrapes, and at no other time.

Runs in: main process, in the thread that scrapes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import holdfast
from holdfast import counted
from holdfast.memory.readings import shared_memory_bytes
from holdfast.metrics import families
from holdfast.metrics.families import COUNTER, Family, Footprint, Reading
from holdfast.records.readings import memory_of

if TYPE_CHECKING:
    from prometheus_client import Metric


def collector() -> Collector:
    """For a registry of your own: `registry.register(holdfast.metrics.collector())`. One is enough for all loaders."""
    require()
    return Collector()


class Collector:
    """What `prometheus_client` calls a custom collector. It reads what is there when it is asked."""

    def collect(self) -> Iterator[Metric]:
        for family in families.families(_read()):
            yield _metric(family)

    def describe(self) -> Iterator[Metric]:
        """The names, for a registry that is to refuse another collector with the same."""
        return self.collect()


def require() -> Any:
    """prometheus-client's core; where that is not installed, ImportError with what to do about it."""
    try:
        import prometheus_client.core
    except ImportError as error:
        said = "holdfast.metrics needs prometheus-client, which is not installed: pip install 'torch-holdfast[metrics]'"
        raise ImportError(said, name="prometheus_client") from error
    return prometheus_client.core


def _metric(family: Family) -> Metric:
    core = require()
    make = core.CounterMetricFamily if family.kind == COUNTER else core.GaugeMetricFamily
    metric: Metric = make(family.name, f"{family.meaning}.", labels=family.labels)
    for values, value in family.samples:
        metric.add_metric(values, value)  # type: ignore[attr-defined]
    return metric


def _read() -> Reading:
    totals = counted.read()
    workers = {front: _footprints(each.worker_pids) for front, each in totals.items()}
    main = next(iter(_footprints([os.getpid()])), Footprint())
    main = dataclasses.replace(main, shared_memory_bytes=shared_memory_bytes("self") or 0)
    return Reading(holdfast.__version__, totals, workers, main)


def _footprints(pids: Iterable[int]) -> list[Footprint]:
    """Of those that are alive: one that has ended, and is only not reaped yet, has no memory."""
    found = [memory for memory in map(memory_of, pids) if memory is not None]
    return [Footprint(each.resident_bytes, each.private_bytes or 0) for each in found if each.resident_bytes]
