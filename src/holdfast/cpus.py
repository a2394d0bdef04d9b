"""How many CPUs this process may really use, which in a container is often far fewer than the machine has.

    affinity     which CPUs it may run on; a cpuset narrows it, and the kernel shows it narrowed
    quota        how much time its cgroup gets, in CPUs: `docker run --cpus 2`, a limit of Kubernetes

A process under a quota is not kept off any CPU. It is stopped, all its threads at once, for the rest of every tenth of
a second in which they have used up their time: more workers than that are slower, not faster.

Standard library only. Runs in: main process.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from holdfast.cgroup_files import ROOT, directories_of


def available_cpus() -> int:
    """How many CPUs this process may use: by its affinity, its cpuset and the quota of its cgroup.

    A fraction of one counts as one.
    """
    return limited_by_quota(by_affinity(), ROOT)


def limited_by_quota(cpus: int, root: Path) -> int:
    """No more than the quota allows, but one. `root` is for recorded trees."""
    quota = _quota(root)
    return cpus if math.isinf(quota) else max(1, min(cpus, math.ceil(quota)))


def by_affinity() -> int:
    """How many CPUs this process may run on, however little time it has there."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13; heeds `python -X cpu_count=n` too
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(root: Path) -> float:
    """The smallest quota of the cgroup or of any above it, in CPUs; infinite if there is none."""
    quotas = (
        _quota_of(directory, version)
        for path, version in directories_of("self", "cpu", root)
        for directory in (path, *path.parents)
    )
    return min((quota for quota in quotas if quota is not None), default=math.inf)


def _quota_of(directory: Path, version: int) -> float | None:
    try:
        if version == 1:  # -1: none
            quota_us, period_us = (int((directory / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        else:  # "max 100000": none
            quota_us, period_us = map(int, (directory / "cpu.max").read_text().split())
    except (OSError, ValueError):
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None
