"""The memory cgroup of a process, version 1 or 2: its limit, its use, and how often the kernel killed in it.

The counter of kills is what tells an out-of-memory kill from a plain `kill -9`: the exit status is the same. Version 1
counts in the process's own cgroup only, version 2 in all above as well. What cannot be read is None.
Standard library only. Runs in: main | supervisor process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.cgroup_files import ROOT, directories_of

_NO_LIMIT = 1 << 60  # version 1 says a huge number where there is none


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """The directory of a cgroup in which memory is counted."""

    directory: Path
    version: int

    def kills(self) -> int | None:
        """How many processes in it the out-of-memory killer has ended."""
        return _counter(self.directory / ("memory.oom_control" if self.version == 1 else "memory.events"), "oom_kill")

    def limit_bytes(self) -> int | None:
        """The smallest limit here or above; None if there is none."""
        return min((limit for _, limit in self.limits()), default=None)

    def limited(self) -> list[MemoryCgroup]:
        """Those, here and above, that have a limit."""
        return [cgroup for cgroup, _ in self.limits()]

    def limits(self) -> list[tuple[MemoryCgroup, int]]:
        """The same, each with its limit."""
        directories = (self.directory, *self.directory.parents)
        found = [(MemoryCgroup(directory, self.version), _number(directory / self._limit)) for directory in directories]
        return [(cgroup, limit) for cgroup, limit in found if limit is not None and limit < _NO_LIMIT]

    @property
    def _limit(self) -> str:
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    def headroom_bytes(self) -> int | None:
        """What can still be had here; None where that is not known, or there is no limit.

        Pages of files that are only kept in case they are read again make room when it is needed.
        """
        limit, usage = _number(self.directory / self._limit), self.usage_bytes()
        return None if limit is None or usage is None else max(0, limit - usage + self._reclaimable_bytes())

    def _reclaimable_bytes(self) -> int:
        prefix = "total_" if self.version == 1 else ""  # version 1 counts those below apart
        counters = _counters(self.directory / "memory.stat")
        return sum(counters.get(f"{prefix}{name}", 0) for name in ("inactive_file", "active_file"))

    def usage_bytes(self) -> int | None:
        return _number(self.directory / ("memory.usage_in_bytes" if self.version == 1 else "memory.current"))


def memory_cgroup_of(pid: int | str, root: Path = ROOT) -> MemoryCgroup | None:
    """Where the memory of a process is counted; None where that cannot be told. `root` is for recorded trees."""
    for path, version in directories_of(pid, "memory", root):
        if (path / ("memory.oom_control" if version == 1 else "memory.events")).exists():
            return MemoryCgroup(path, version)
    return None


def limited_cgroups_of(pid: int | str) -> list[MemoryCgroup]:
    """Those whose limits hold for a process."""
    cgroup = memory_cgroup_of(pid)
    return cgroup.limited() if cgroup is not None else []


def left_bytes(limited: Iterable[MemoryCgroup]) -> int | None:
    """The least of what these cgroups, and the machine, have left; None where nothing is known of them."""
    left = (host_available_bytes(), *(cgroup.headroom_bytes() for cgroup in limited))
    return min((nbytes for nbytes in left if nbytes is not None), default=None)


def host_kills(root: Path = ROOT) -> int | None:
    """How many processes of the whole machine the out-of-memory killer has ended since it started."""
    return _counter(root / "proc" / "vmstat", "oom_kill")


def host_available_bytes(root: Path = ROOT) -> int | None:
    kilobytes = _counter(root / "proc" / "meminfo", "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _counter(path: Path, name: str) -> int | None:
    return _counters(path, name).get(name)


def _counters(path: Path, until: str = "") -> dict[str, int]:
    """By name, in a file of one name and number per line; no further than the one that is asked for."""
    found: dict[str, int] = {}
    try:
        for line in path.read_text().splitlines():
            name, number, *_ = line.split()
            found[name] = int(number)
            if name == until:
                break
    except (OSError, ValueError):
        pass
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # version 2 says "max"
        return None
