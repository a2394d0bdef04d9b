"""Every metric there is: its name, what it means, its labels, and its values now. Pure.

    Totals of each front, memory of processes ──► families() ──► Family, Family, ...

Names and labels are for others to build on: a test holds them to the table in docs/metrics.md. No label is an index, a
pid or a path: the number of series is bounded, however long a process runs.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.counted import FRONTS, LOADER, STAGES, Totals

CALLS = tuple(front for front in FRONTS if front != LOADER)
COUNTER, GAUGE = "counter", "gauge"

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and that of the metric."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str  # as it is scraped: a counter ends in _total
    kind: str
    meaning: str
    labels: tuple[str, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What processes have in memory."""

    resident_bytes: int = 0
    anonymous_bytes: int = 0  # of that, what is neither shared memory nor of a file
    shared_memory_bytes: int = 0  # batches in their slots, and what `share()` has made


@dataclass(frozen=True, slots=True)
class Reading:
    """All that is exported, at one moment."""

    version: str
    totals: Mapping[str, Totals]  # by front
    workers: Mapping[str, Sequence[Footprint]]  # by front: of each that is alive
    main: Footprint


def families(reading: Reading) -> list[Family]:
    return [*_of_loading(reading), *_of_calls(reading), *_of_trouble(reading), *_of_processes(reading)]


def _of_loading(reading: Reading) -> list[Family]:
    counts = reading.totals[LOADER].counts
    stages = tuple(((name.removesuffix("_s"),), counts[name]) for name in STAGES)
    return [
        _counter("batches", "Batches that loaders have delivered", counts["batches"]),
        _counter("samples", "Samples in those batches", counts["samples"]),
        _counter("skipped_samples", "Samples that were passed over, skipped or replaced", counts["skipped"]),
        _counter("wait_seconds", "Seconds that next() has waited for a batch", counts["waited_s"]),
        Family(
            "holdfast_stage_seconds_total",
            COUNTER,
            "Seconds that workers have spent in each stage of a batch, added up over all workers",
            ("stage",),
            stages,
        ),
        _counter("recycled_workers", "Workers replaced between batches, as recycle_after says", counts["recycled"]),
    ]


def _of_calls(reading: Reading) -> list[Family]:
    done = {front: reading.totals[front].counts["samples"] for front in CALLS}
    failed = {front: reading.totals[front].counts["skipped"] for front in CALLS}
    return [
        _by_front("calls_total", COUNTER, "Calls that have come back, whatever came of them; a rank is one call", done),
        _by_front("failed_calls_total", COUNTER, "Of these, the ones that failed", failed),
    ]


def _of_trouble(reading: Reading) -> list[Family]:
    totals = reading.totals
    incidents = [
        ((front, cause), float(number)) for front in FRONTS for cause, number in sorted(totals[front].incidents.items())
    ]
    last = {front: at for front in FRONTS if (at := totals[front].last_incident) is not None}
    restarts = {front: totals[front].counts["restarts"] for front in FRONTS}
    supervisors = totals[LOADER].counts["supervisor_restarts"]
    return [
        Family(
            "holdfast_incidents_total",
            COUNTER,
            "What went wrong, by its cause, as in docs/failures",
            ("front", "cause"),
            tuple(incidents),
        ),
        _by_front("last_incident_timestamp_seconds", GAUGE, "When something last went wrong, in Unix time", last),
        _by_front("restarts_total", COUNTER, "Workers lost and replaced; of spawn, groups of ranks", restarts),
        _counter("supervisor_restarts", "Supervisors of loaders that were lost and replaced", supervisors),
    ]


def _of_processes(reading: Reading) -> list[Family]:
    workers, main = reading.workers, reading.main
    alive = {front: len(workers[front]) for front in FRONTS}
    resident = {front: sum(each.resident_bytes for each in workers[front]) for front in FRONTS}
    anonymous = {front: sum(each.anonymous_bytes for each in workers[front]) for front in FRONTS}
    largest = {front: max((each.anonymous_bytes for each in workers[front]), default=0) for front in FRONTS}
    return [
        _by_front("workers", GAUGE, "Worker processes that are alive", alive),
        _by_front("workers_resident_bytes", GAUGE, "Resident memory of all workers, added up", resident),
        _by_front("workers_anonymous_bytes", GAUGE, "Of that, what is neither shared memory nor of a file", anonymous),
        _by_front("largest_worker_anonymous_bytes", GAUGE, "The same, of the worker that has most", largest),
        _gauge("main_resident_bytes", "Resident memory of the process that serves this", main.resident_bytes),
        _gauge("main_anonymous_bytes", "Of that, what is neither shared memory nor of a file", main.anonymous_bytes),
        _gauge(
            "main_shared_memory_bytes",
            "Of that, shared memory: batches in their slots, what holdfast.share() has made",
            main.shared_memory_bytes,
        ),
        Family("holdfast_info", GAUGE, "Always 1; says the version", ("version",), (((reading.version,), 1.0),)),
    ]


def _counter(name: str, meaning: str, value: float) -> Family:
    return Family(f"holdfast_{name}_total", COUNTER, meaning, (), (((), value),))


def _gauge(name: str, meaning: str, value: float) -> Family:
    return Family(f"holdfast_{name}", GAUGE, meaning, (), (((), value),))


def _by_front(name: str, kind: str, meaning: str, values: Mapping[str, float]) -> Family:
    return Family(
        f"holdfast_{name}", kind, meaning, ("front",), tuple(((front,), value) for front, value in values.items())
    )
