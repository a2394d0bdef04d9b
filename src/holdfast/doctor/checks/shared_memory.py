"""/dev/shm: whether it is there, can be written to, and is as large as batches in flight.

holdfast keeps its batches in memory without a name, which the size of /dev/shm does not bound. torch's own loader and
multiprocessing's locks and queues do not.

Runs in: main process.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.doctor.scope import Scope
from holdfast.words import size

NAME = "/dev/shm"
LIMIT_S = 10.0
_SMALL_BYTES = 1 << 30
_FULL_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    exists: bool = True
    """Or there need be none: it is Linux's."""
    is_writable: bool = True
    total_bytes: int = 0
    free_bytes: int = 0


def look(scope: Scope) -> Facts:
    path = scope.root / "dev/shm"
    if sys.platform != "linux":
        return Facts()
    try:
        room = os.statvfs(path)
    except OSError:
        return Facts(exists=False)
    is_writable = os.access(path, os.W_OK) and not room.f_flag & os.ST_RDONLY
    return Facts(True, is_writable, room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)


_NEEDED = "locks and queues of multiprocessing cannot be made, and torch's own loader cannot send a batch"
_LARGER = ("docker run --shm-size=8g ...", "mount -o remount,size=8g /dev/shm  # as root")


def judge(facts: Facts) -> list[Finding]:
    if not facts.exists:
        return [Finding(NAME, Level.PROBLEM, "there is no /dev/shm", ("statvfs fails",), _NEEDED, _LARGER[:1])]
    if not facts.is_writable:
        remedy = ("sudo mount -o remount,rw /dev/shm && sudo chmod 1777 /dev/shm",)
        return [Finding(NAME, Level.PROBLEM, "/dev/shm cannot be written to", (_room(facts),), _NEEDED, remedy)]
    if not facts.total_bytes:
        return [ok(NAME, "not of a size that is known")]
    if facts.free_bytes < min(_FULL_BYTES, facts.total_bytes // 2):
        return [
            Finding(
                NAME,
                Level.WARNING,
                f"/dev/shm is nearly full: {size(facts.free_bytes)} left",
                evidence=(_room(facts),),
                consequence="torch's own loader and NCCL die of SIGBUS there; holdfast's batches are elsewhere",
                remedy=("ls -lS /dev/shm | head  # what fills it: names that a killed program left can be removed",),
            )
        ]
    if facts.total_bytes < _SMALL_BYTES:
        return [
            Finding(
                NAME,
                Level.WARNING,
                f"/dev/shm is small: {size(facts.total_bytes)}, as containers have it by default",
                evidence=(_room(facts),),
                consequence="torch's own loader and NCCL die of a bus error on it; holdfast's batches are not in it",
                remedy=_LARGER,
            )
        ]
    return [ok(NAME, _room(facts))]


def _room(facts: Facts) -> str:
    return f"{size(facts.free_bytes)} free of {size(facts.total_bytes)}"
