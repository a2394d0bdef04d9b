"""The memory that workers may have: of the machine, of every cgroup above, and by ulimit; and what was killed for it.

Runs in: main process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from holdfast.doctor import kernel_files
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.memory import cgroups
from holdfast.words import plural, size

NAME = "memory"
LIMIT_S = 10.0
_PROBLEM_BYTES = 512 << 20  # torch alone, imported once, has about 300 MiB
_WARNING_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Limit:
    """Of a cgroup."""

    directory: str
    version: int
    limit_bytes: int
    left_bytes: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    total_bytes: int | None = None
    available_bytes: int | None = None
    limits: tuple[Limit, ...] = ()
    kills: int = 0
    """Processes that the kernel has ended in this cgroup for want of memory."""
    kills_all_together: bool = False
    """memory.oom.group of version 2: where one is over, all are ended."""
    stops_instead: bool = False
    """oom_kill_disable of version 1: where memory is out, processes wait for ever."""
    never_overcommits: bool = False
    ulimit_bytes: int | None = None
    """Of the address space: `ulimit -v`."""

    @property
    def left_bytes(self) -> int | None:
        left = (self.available_bytes, *(limit.left_bytes for limit in self.limits))
        return min((nbytes for nbytes in left if nbytes is not None), default=None)


def look(scope: Scope) -> Facts:
    info = kernel_files.meminfo(scope.root)
    cgroup = cgroups.memory_cgroup_of("self", scope.root)
    oom_control = kernel_files.text(cgroup.directory / "memory.oom_control") if cgroup is not None else None
    return Facts(
        total_bytes=info.get("MemTotal"),
        available_bytes=info.get("MemAvailable"),
        limits=_limits(cgroup),
        kills=(cgroup.kills() or 0) if cgroup is not None else 0,
        kills_all_together=cgroup is not None and kernel_files.number(cgroup.directory / "memory.oom.group") == 1,
        stops_instead="oom_kill_disable 1" in (oom_control or "").splitlines(),
        never_overcommits=kernel_files.number(scope.root / "proc/sys/vm/overcommit_memory") == 2,
        ulimit_bytes=_ulimit(),
    )


def _limits(cgroup: cgroups.MemoryCgroup | None) -> tuple[Limit, ...]:
    found = cgroup.limits() if cgroup is not None else []
    return tuple(Limit(str(one.directory), one.version, limit, one.headroom_bytes()) for one, limit in found)


def _ulimit() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def judge(facts: Facts) -> list[Finding]:
    found = [*_too_little(facts), *_how_it_ends(facts), *_address_space(facts)]
    return found or [ok(NAME, _summary(facts))]


def _summary(facts: Facts) -> str:
    if facts.left_bytes is None:
        return "what there is cannot be read here"
    limit = min((one.limit_bytes for one in facts.limits), default=None)
    of = f"a cgroup's {size(limit)}" if limit is not None else f"{size(facts.total_bytes or 0)}, no cgroup limits it"
    return f"{size(facts.left_bytes)} left of {of}"


def _too_little(facts: Facts) -> list[Finding]:
    left = facts.left_bytes
    if left is None or left >= _WARNING_BYTES:
        return []
    in_cgroup = [one for one in facts.limits if one.left_bytes == left]
    remedy = (
        ("docker run --memory 16g ...  # or resources.limits.memory in Kubernetes, --mem in Slurm",)
        if in_cgroup
        else ("ps -eo rss,pid,args --sort -rss | head  # who has it",)
    )
    return [
        Finding(
            NAME,
            Level.PROBLEM if left < _PROBLEM_BYTES else Level.WARNING,
            f"only {size(left)} of memory are left for workers",
            evidence=_evidence(facts),
            consequence="the kernel kills a worker, or the trainer, with SIGKILL and without a word",
            remedy=(*remedy, 'DataLoader(..., memory_budget="80%")  # as many batches at once as fit'),
        )
    ]


def _evidence(facts: Facts) -> tuple[str, ...]:
    of_machine = f"the machine: {size(facts.available_bytes or 0)} available of {size(facts.total_bytes or 0)}"
    left = ((one, "unknown" if one.left_bytes is None else size(one.left_bytes)) for one in facts.limits)
    return (
        of_machine,
        *(f"cgroup v{one.version} {one.directory}: limit {size(one.limit_bytes)}, {what} left" for one, what in left),
    )


def _how_it_ends(facts: Facts) -> list[Finding]:
    found = []
    if facts.kills:
        found.append(
            Finding(
                NAME,
                Level.WARNING,
                f"the kernel has ended {plural(facts.kills, 'process')} here for want of memory",
                evidence=(f"oom_kill {facts.kills} in the memory cgroup of this process", *_evidence(facts)),
                consequence="what ran out of memory before will again: a worker killed so leaves no message of its own",
                remedy=('DataLoader(..., memory_limit="4GB")  # a sample that wants more fails, and is named',),
            )
        )
    if facts.kills_all_together:
        found.append(
            Finding(
                NAME,
                Level.WARNING,
                "when memory is out, the kernel ends all processes of this container at once",
                evidence=("memory.oom.group is 1",),
                consequence="one worker that is over takes the trainer with it: nobody is left to replace it",
                remedy=('DataLoader(..., memory_budget="80%", memory_limit="4GB")  # stay below the limit',),
            )
        )
    if facts.stops_instead:
        found.append(
            Finding(
                NAME,
                Level.PROBLEM,
                "when memory is out, processes are stopped for ever and not ended",
                evidence=("oom_kill_disable 1 in memory.oom_control",),
                consequence="a worker that wants more memory hangs, and cannot be killed until there is some",
                remedy=("docker run ...  # without --oom-kill-disable",),
            )
        )
    return found


def _address_space(facts: Facts) -> list[Finding]:
    found = []
    if facts.ulimit_bytes is not None:
        found.append(
            Finding(
                NAME,
                Level.WARNING,
                f"the address space of a process is limited to {size(facts.ulimit_bytes)}",
                evidence=(f"ulimit -v is {facts.ulimit_bytes // 1024}",),
                consequence="shared memory, mapped files and CUDA count, though they take none: allocations fail early",
                remedy=("ulimit -v unlimited", 'DataLoader(..., memory_limit="4GB")  # counts a worker\'s own memory'),
            )
        )
    if facts.never_overcommits:
        found.append(
            Finding(
                NAME,
                Level.WARNING,
                "the kernel promises no more memory than there is",
                evidence=("vm.overcommit_memory is 2",),
                consequence="a fork of a large trainer fails with ENOMEM, though its pages would be shared",
                remedy=("sudo sysctl vm.overcommit_memory=0",),
            )
        )
    return found
