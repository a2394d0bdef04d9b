"""How many processes and threads there may be: of the user, of the cgroup, of the machine.

Runs in: main process.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

import psutil

from holdfast.cgroup_files import directories_of
from holdfast.cpus import available_cpus
from holdfast.doctor import kernel_files
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope

NAME = "processes"
LIMIT_S = 20.0
_EACH = 8  # threads of a worker that has loaded a few libraries


@dataclass(frozen=True, slots=True)
class Limit:
    """Threads count as well as processes."""

    what: str
    most: int
    used: int
    remedy: str


@dataclass(frozen=True, slots=True)
class Facts:
    cpus: int
    limits: tuple[Limit, ...] = ()


def look(scope: Scope) -> Facts:
    limits = [*_of_user(), *_of_cgroups(scope), *_of_machine(scope)]
    return Facts(available_cpus(), tuple(limits))


def _of_user() -> list[Limit]:
    if sys.platform != "linux" or os.geteuid() == 0:  # the kernel does not hold root to it
        return []
    import resource

    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most == resource.RLIM_INFINITY:
        return []
    return [Limit("of this user (ulimit -u)", most, _threads_of_user(), "ulimit -u unlimited")]


def _threads_of_user() -> int:
    mine, count = os.getuid(), 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == mine:
            count += process.info["num_threads"] or 0
    return count


def _of_cgroups(scope: Scope) -> list[Limit]:
    found = []
    for path, _ in directories_of("self", "pids", scope.root):
        for directory in (path, *path.parents):
            most, used = (kernel_files.number(directory / f"pids.{name}") for name in ("max", "current"))
            if most is not None and used is not None:
                found.append(Limit(f"of the cgroup {directory}", most, used, "docker run --pids-limit -1 ..."))
    return found


def _of_machine(scope: Scope) -> list[Limit]:
    kernel = scope.root / "proc/sys/kernel"
    limits = [most for name in ("pid_max", "threads-max") if (most := kernel_files.number(kernel / name)) is not None]
    running = re.search(r"\d+/(\d+)", kernel_files.text(scope.root / "proc/loadavg") or "")
    if not limits or running is None:
        return []
    remedy = "sudo sysctl kernel.pid_max=4194304 kernel.threads-max=4194304"
    return [Limit("of the machine", min(limits), int(running[1]), remedy)]


def judge(facts: Facts) -> list[Finding]:
    tight = [limit for limit in facts.limits if limit.most - limit.used < _EACH * (facts.cpus + 2)]
    if not tight:
        left = min((limit.most - limit.used for limit in facts.limits), default=None)
        room = "no limit that matters" if left is None else f"of processes and threads {left} more can be had"
        return [ok(NAME, room)]
    return [_finding(facts, limit) for limit in tight]


def _finding(facts: Facts, limit: Limit) -> Finding:
    left = max(0, limit.most - limit.used)
    return Finding(
        NAME,
        Level.PROBLEM if left < facts.cpus + 2 else Level.WARNING,  # a worker for each CPU, and their supervisor
        f"of processes and threads only {left} more can be had",
        evidence=(f"limit {limit.what}: {limit.used} of {limit.most} are there",),
        consequence='workers cannot be started, or their threads: "Resource temporarily unavailable"',
        remedy=(limit.remedy,),
    )
