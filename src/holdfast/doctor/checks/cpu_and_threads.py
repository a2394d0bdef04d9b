"""The CPUs this process may really use, against the threads that OpenMP, MKL and OpenCV would start in every worker.

Runs in: main process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.cpus import by_affinity, limited_by_quota
from holdfast.doctor.environment import variables
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.doctor.torch_probe import installed_version
from holdfast.words import plural

NAME = "CPUs and threads"
LIMIT_S = 10.0
_COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
_BINDINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_UNBOUND = {"", "false", "none", "disabled"}
_DUPLICATES = "KMP_DUPLICATE_LIB_OK"
_OPENCV = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")


@dataclass(frozen=True, slots=True)
class Facts:
    machine: int
    affinity: int
    usable: int
    """By affinity and the quota of the cgroup."""
    variables: Mapping[str, str] = field(default_factory=dict)
    opencv: str | None = None
    """Its version; None: it is not installed."""


def look(scope: Scope) -> Facts:
    affinity = by_affinity()
    return Facts(
        os.cpu_count() or 1,
        affinity,
        limited_by_quota(affinity, scope.root),
        variables((*_COUNTS, *_BINDINGS, _DUPLICATES)),
        next(filter(None, map(installed_version, _OPENCV)), None),
    )


def judge(facts: Facts) -> list[Finding]:
    found = [*_quota(facts), *_affinity(facts), *_counts(facts), *_bound(facts), *_twice(facts), *_opencv(facts)]
    if any(finding.level is not Level.NOTE for finding in found):
        return found
    threads = ", ".join(f"{name}={facts.variables[name]}" for name in _COUNTS if name in facts.variables)
    said = threads or "one thread in a worker for each library that holdfast knows"
    return [*found, ok(NAME, f"{facts.usable} of {plural(facts.machine, 'CPU')}; {said}")]


def _quota(facts: Facts) -> list[Finding]:
    if facts.usable >= facts.affinity:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"the machine shows {facts.affinity} CPUs, and this process gets the time of {facts.usable}",
            evidence=("the quota of its cgroup: cpu.max, or cpu.cfs_quota_us",),
            consequence="libraries start a thread for each CPU they see; all are stopped when the time is used up",
            remedy=(
                f"export OMP_NUM_THREADS={facts.usable}  # before the program starts",
                "DataLoader(..., num_workers=holdfast.available_cpus())",
            ),
        )
    ]


def _affinity(facts: Facts) -> list[Finding]:
    if facts.affinity > 1 or facts.machine == 1:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"this process may run on one of {facts.machine} CPUs only",
            evidence=("sched_getaffinity names one",),
            consequence="all workers share it: more of them are not faster",
            remedy=(
                "taskset -cp 0-$(($(nproc --all) - 1)) $$  # then start the program",
                "srun --cpus-per-task=8 ...  # under Slurm",
            ),
        )
    ]


def _counts(facts: Facts) -> list[Finding]:
    told = {name: int(facts.variables[name]) for name in _COUNTS if facts.variables.get(name, "").isdecimal()}
    many = {name: number for name, number in told.items() if number > 1}
    if not many:
        return []
    most = max(many.values())
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"each worker may start {most} threads, and there are {plural(facts.usable, 'CPU')}",
            evidence=tuple(f"{name}={number}" for name, number in many.items()),
            consequence=f"a worker for each CPU makes {most * facts.usable} threads: slower, and more memory",
            remedy=(f"DataLoader(..., num_workers={max(1, facts.usable // most)})", f"unset {' '.join(many)}"),
        )
    ]


def _bound(facts: Facts) -> list[Finding]:
    bound = [
        f"{name}={facts.variables[name]}"
        for name in _BINDINGS
        if name in facts.variables and facts.variables[name].strip().lower() not in _UNBOUND
    ]
    if not bound:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            "OpenMP is told to bind threads to CPUs",
            evidence=tuple(bound),
            consequence="workers inherit the binding of the thread that starts them: all may run on one CPU",
            remedy=(f"unset {' '.join(line.partition('=')[0] for line in bound)}",),
        )
    ]


def _twice(facts: Facts) -> list[Finding]:
    if facts.variables.get(_DUPLICATES, "").strip().lower() not in ("true", "1", "yes"):
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            "two OpenMP libraries in one process are allowed",
            evidence=(f"{_DUPLICATES}={facts.variables[_DUPLICATES]}",),
            consequence="what it silences is an abort; what it allows are crashes and wrong results",
            remedy=(f"unset {_DUPLICATES}", "python -m threadpoolctl -i torch numpy  # which two there are"),
        )
    ]


def _opencv(facts: Facts) -> list[Finding]:
    if facts.opencv is None or "OPENCV_FOR_THREADS_NUM" in facts.variables:
        return []
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"OpenCV {facts.opencv} has threads of its own, as many as CPUs, in every worker",
            evidence=("neither torch nor OMP_NUM_THREADS tells it how many",),
            consequence="workers get in each other's way; and used before a fork, its locks may hang the workers",
            remedy=("import cv2; cv2.setNumThreads(0)  # at the top of the module that has the dataset",),
        )
    ]
