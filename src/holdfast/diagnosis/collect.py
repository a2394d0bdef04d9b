"""Reading the evidence that lies outside a worker: the kernel's counters, its memory over time, inherited files.

    at birth ──► inherited files, counters        at every tick ──► memory, counters        at death ──► counters

Cheap, bounded, and never raising: what cannot be read is left out. Runs in: supervisor process.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from holdfast.diagnosis.evidence import MemoryCounters, MemoryReading
from holdfast.memory import cgroups, readings

_READINGS = 16
_INHERITED = 200
_UNINTERESTING = ("/dev/", "/proc/", "/sys/", "pipe:", "anon_inode:", "/memfd:")


class MemoryHistory:
    """The last readings of one worker's memory."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int, int, int]] = deque(maxlen=_READINGS)

    def take(self, pid: int, now_s: float, unit: int, position: int) -> None:
        nbytes = readings.anonymous_bytes(pid)
        if nbytes is not None:  # of a process that has ended the last one before counts
            self._readings.append((now_s, nbytes, unit, position))

    def before(self, end_s: float) -> tuple[MemoryReading, ...]:
        return tuple(MemoryReading(end_s - at_s, *rest) for at_s, *rest in self._readings)


def memory_counters(pid: int | str) -> MemoryCounters:
    """What the kernel counts for a process, which may have ended but not been reaped."""
    cgroup = cgroups.memory_cgroup_of(pid)
    return MemoryCounters(
        cgroup=str(cgroup.directory) if cgroup is not None else "",
        cgroup_kills=cgroup.kills() if cgroup is not None else None,
        cgroup_limit_bytes=cgroup.limit_bytes() if cgroup is not None else None,
        cgroup_usage_bytes=cgroup.usage_bytes() if cgroup is not None else None,
        host_kills=cgroups.host_kills(),
        host_available_bytes=cgroups.host_available_bytes(),
    )


def open_files() -> tuple[str, ...]:
    """What this process has open: paths, and sockets by their number. Without what every process has."""
    found = []
    for name in _listed("/proc/self/fd"):
        try:
            target = str(Path(f"/proc/self/fd/{name}").readlink())
        except OSError:
            continue
        if not target.startswith(_UNINTERESTING):
            found.append(target)
    return tuple(sorted(set(found))[:_INHERITED])


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
