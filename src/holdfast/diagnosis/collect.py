"""Reading the evidence that lies outside a worker: the kernel's counters, its memory over time, inherited files.

    at birth ──► inherited files, counters       at every tick ──► memory, counters       at death ──► counters

Cheap, bounded, and never raising: what cannot be read is left out. Runs in: supervisor process;
`open_files` in the main process as well.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from pathlib import Path
from weakref import WeakSet

from holdfast.diagnosis.evidence import MemoryCounters, MemoryReading
from holdfast.memory import cgroups, readings
from holdfast.memory.cgroups import MemoryCgroup

_READINGS = 16
_LATEST = 6  # of these, one after the other
_INTERVAL_S = 0.4
_INHERITED = 200
_FLAGS, _PENDING = 6, 28  # fields of /proc/PID/stat after the name: see proc_pid_stat(5)
_PF_ENDING = 0x4 | 0x400  # PF_EXITING, PF_SIGNALED
_SIGKILL_BIT = 1 << 8
_UNINTERESTING = ("/dev/", "/proc/", "/sys/", "pipe:", "anon_inode:", "/memfd:")


class MemoryWatch:
    """The memory of one worker over its life, and what the kernel counted of kills around its death."""

    def __init__(self, pid: int, before: MemoryCounters | None = None) -> None:
        """`before`: what was counted in the cgroup of its parent, when it was not yet started."""
        self._pid = pid
        self._cgroup: MemoryCgroup | None = None
        self._before = before or MemoryCounters()
        self._readings: list[tuple[float, int, int, int]] = []  # oldest first
        self.at_start_bytes = readings.anonymous_bytes(pid) or 0
        self._last_s = -_INTERVAL_S
        self._counted_s = time.monotonic()  # when `_before` was read
        _watches.add(self)
        self.look_again()

    def look_again(self) -> None:
        """Find the worker's cgroup: at its start, and once its worker_init_fn, which may have moved it, has run."""
        self._cgroup = cgroups.memory_cgroup_of(self._pid) or self._cgroup
        self._take(read_counters(self._cgroup))

    def tick(self, now_s: float, unit: int, position: int) -> None:
        """While it lives."""
        if now_s - self._last_s < _INTERVAL_S:
            return
        self._last_s = now_s
        counters = read_counters(self._cgroup, self._before)
        nbytes = readings.anonymous_bytes(self._pid)
        if nbytes is None:  # of a process that has ended the last one before counts
            return
        self._readings.append((now_s, nbytes, unit, position))
        self._thin_out()
        self._take(counters)

    def _take(self, counters: MemoryCounters) -> None:
        """What was counted so far was of other processes; where this one is ending, it may have been its own."""
        if not (counted_a_kill(self._before, counters) and _is_ending(self._pid)):
            self._before, self._counted_s = counters, time.monotonic()

    def _thin_out(self) -> None:
        """Keep the first, the latest, and between them some that are spread over the whole life: a leak may be slow."""
        if len(self._readings) > _READINGS:
            kept = self._readings
            del kept[min(range(1, _READINGS - _LATEST), key=lambda k: kept[k + 1][0] - kept[k - 1][0])]

    def history(self, end_s: float) -> tuple[MemoryReading, ...]:
        return tuple(MemoryReading(end_s - at_s, *rest) for at_s, *rest in self._readings)

    def around_death(self) -> tuple[MemoryCounters, MemoryCounters]:
        """Before and after it."""
        return self._before, read_counters(self._cgroup)

    def kills_seen(self) -> int:
        """How many deaths by SIGKILL, this one among them, may be what was counted since the last reading.

        One that is about to end counts as well: it may be the one that the kernel chose. Asked once, after a death.
        """
        _watches.discard(self)
        before = sum(at_s >= self._counted_s for at_s in _killed_s)
        _killed_s.append(time.monotonic())
        return 1 + before + sum(_is_ending(other._pid, if_unknown=False) for other in list(_watches))


_watches: WeakSet[MemoryWatch] = WeakSet()  # of this process
_killed_s: deque[float] = deque(maxlen=64)  # when this process was told of a death by SIGKILL


def read_counters(cgroup: MemoryCgroup | None, known: MemoryCounters | None = None) -> MemoryCounters:
    """`known`: what need not be read again, because it hardly changes."""
    if cgroup is None:
        return MemoryCounters(host_kills=cgroups.host_kills(), host_available_bytes=cgroups.host_available_bytes())
    return MemoryCounters(
        cgroup=str(cgroup.directory),
        cgroup_kills=cgroup.kills(),
        cgroup_limit_bytes=known.cgroup_limit_bytes if known is not None else cgroup.limit_bytes(),
        cgroup_usage_bytes=cgroup.usage_bytes(),
    )


def counted_a_kill(before: MemoryCounters, after: MemoryCounters) -> bool:
    return (before.cgroup_kills, before.host_kills) != (after.cgroup_kills, after.host_kills)


def _is_ending(pid: int, *, if_unknown: bool = True) -> bool:
    """Whether it has been killed, or is about to be gone: to take a large process apart takes the kernel a while."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return bool(int(after_name[_FLAGS]) & _PF_ENDING or int(after_name[_PENDING]) & _SIGKILL_BIT)
    except (OSError, ValueError, IndexError):
        return if_unknown


def open_files() -> tuple[str, ...]:
    """What this process has open: paths, and sockets that lead to a server, by their number.

    Without what every process has, and without pairs of sockets, by which we talk to our own processes.
    """
    found = []
    for link in _entries(Path("/proc/self/fd")):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if not target.startswith(_UNINTERESTING) and not _is_of_a_pair(int(link.name), target):
            found.append(target)
    return tuple(sorted(set(found))[:_INHERITED])


def threads_of(pid: int) -> int | None:
    """How many threads it has, also those that Python knows nothing of; None where that cannot be read."""
    return len(_entries(Path(f"/proc/{pid}/task"))) or None


def _is_of_a_pair(fd: int, target: str) -> bool:
    """Whether this is a socket without an address to lead to: one of a pair, or not connected."""
    if not target.startswith("socket:"):
        return False
    try:
        # Of a copy: were a signal handler to raise in here, the end of this object would close the user's own.
        with socket.socket(fileno=os.dup(fd)) as copy:
            return not copy.getpeername()
    except OSError:
        return True


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []
