"""Memory that may be locked: for pinned batches, and for network cards that read memory by themselves.

CUDA's own pinned memory is not held to `ulimit -l`, but it cannot be swapped or moved, and counts in the cgroup.

Runs in: main process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from holdfast.doctor import nvidia
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.memory import cgroups
from holdfast.words import plural, size

NAME = "pinned memory"
LIMIT_S = 10.0
_ENOUGH_BYTES = 1 << 30
_LITTLE_PER_GPU_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Facts:
    lock_bytes: int | None = None
    """What a process may lock (`ulimit -l`); None: as much as it wants."""
    gpus: int = 0
    has_infiniband: bool = False
    cgroup_bytes: int | None = None


def look(scope: Scope) -> Facts:
    cgroup = cgroups.memory_cgroup_of("self", scope.root)
    return Facts(
        _lock_bytes(),
        len(nvidia.device_nodes(scope.root)),
        any(scope.root.glob("sys/class/infiniband/*")),
        cgroup.limit_bytes() if cgroup is not None else None,
    )


def _lock_bytes() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def judge(facts: Facts) -> list[Finding]:
    found = [*_network(facts), *_cgroup(facts)]
    may = "without a limit" if facts.lock_bytes is None else size(facts.lock_bytes)
    who = "CUDA's own is not held to it" if facts.gpus else "there is no GPU to pin it for"
    return found or [ok(NAME, f"ulimit -l: {may}; {who}")]


def _network(facts: Facts) -> list[Finding]:
    if not facts.has_infiniband or facts.lock_bytes is None or facts.lock_bytes >= _ENOUGH_BYTES:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"a process may lock only {size(facts.lock_bytes)}, and this machine has InfiniBand",
            evidence=(f"ulimit -l is {facts.lock_bytes // 1024}", "there is a device in /sys/class/infiniband"),
            consequence="NCCL cannot register its buffers: ranks fail, or fall back to a slow network",
            remedy=("docker run --ulimit memlock=-1 ...", "ulimit -l unlimited"),
        )
    ]


def _cgroup(facts: Facts) -> list[Finding]:
    if not facts.gpus or facts.cgroup_bytes is None or facts.cgroup_bytes >= facts.gpus * _LITTLE_PER_GPU_BYTES:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"{size(facts.cgroup_bytes)} of memory for {plural(facts.gpus, 'GPU')} leave little to pin",
            evidence=(f"the limit of the cgroup is {size(facts.cgroup_bytes)}",),
            consequence="pinned batches cannot be swapped or reclaimed: the kernel kills a worker, or the trainer",
            remedy=(
                "docker run --memory 64g ...",
                "DataLoader(..., prefetch_factor=1)  # fewer batches at once",
            ),
        )
    ]
