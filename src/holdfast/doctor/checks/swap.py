"""Swap: how much is in use, and whether workers may use it at all.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.doctor import kernel_files
from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.memory import cgroups
from holdfast.words import size

NAME = "swap"
LIMIT_S = 10.0
_BUSY_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Facts:
    total_bytes: int = 0
    free_bytes: int = 0
    cgroup_allows_none: bool = False


def look(scope: Scope) -> Facts:
    info = kernel_files.meminfo(scope.root)
    cgroup = cgroups.memory_cgroup_of("self", scope.root)
    allowed = None if cgroup is None else kernel_files.number(cgroup.directory / "memory.swap.max")
    return Facts(info.get("SwapTotal", 0), info.get("SwapFree", 0), allowed == 0)


def judge(facts: Facts) -> list[Finding]:
    used = facts.total_bytes - facts.free_bytes
    if facts.total_bytes and used > _BUSY_SHARE * facts.total_bytes:
        return [
            Finding(
                NAME,
                Level.WARNING,
                f"{size(used)} of {size(facts.total_bytes)} of swap are in use",
                evidence=(f"SwapTotal {size(facts.total_bytes)}, SwapFree {size(facts.free_bytes)}",),
                consequence="workers whose pages are on disk are slow enough to look as if they hung",
                remedy=("ps -eo rss,pid,args --sort -rss | head  # who fills the memory",),
            )
        ]
    if not facts.total_bytes or facts.cgroup_allows_none:
        why = "none" if not facts.total_bytes else "this cgroup may use none"
        return [ok(NAME, f"{why}: when memory is out, the kernel kills at once")]
    return [ok(NAME, f"{size(used)} of {size(facts.total_bytes)} in use")]
