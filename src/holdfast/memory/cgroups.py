"""The memory cgroup of a process, version 1 or 2: its limit, its use, and how often the kernel killed in it.

The counter of kills is what tells an out-of-memory kill from a plain `kill -9`: the exit status is the same. Version 1
counts in the process's own cgroup only, version 2 in all above as well. What cannot be read is None.
Standard library only. Runs in: main | supervisor process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
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
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        limits = [_number(directory / name) for directory in (self.directory, *self.directory.parents)]
        return min((limit for limit in limits if limit is not None and limit < _NO_LIMIT), default=None)

    def headroom_bytes(self) -> int | None:
        """What can still be had, here and in all above that have a limit; None if none has.

        Pages of files that are only kept in case they are read again make room when it is needed.
        """
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        found = []
        for directory in (self.directory, *self.directory.parents):
            limit = _number(directory / name)
            usage = MemoryCgroup(directory, self.version).usage_bytes() if limit is not None else None
            if limit is not None and usage is not None and limit < _NO_LIMIT:
                found.append(limit - usage + self._reclaimable_bytes(directory))
        return max(0, min(found)) if found else None

    def _reclaimable_bytes(self, directory: Path) -> int:
        prefix = "total_" if self.version == 1 else ""  # version 1 counts those below apart
        counters = [_counter(directory / "memory.stat", f"{prefix}{name}") for name in ("inactive_file", "active_file")]
        return sum(counter or 0 for counter in counters)

    def usage_bytes(self) -> int | None:
        return _number(self.directory / ("memory.usage_in_bytes" if self.version == 1 else "memory.current"))


def memory_cgroup_of(pid: int | str, root: Path = _ROOT) -> MemoryCgroup | None:
    """Where the memory of a process is counted; None where that cannot be told. `root` is for recorded trees."""
    proc = root / "proc" / str(pid)
    try:
        paths = dict(_controllers((proc / "cgroup").read_text()))
        mounts = _mounts((proc / "mountinfo").read_text())
    except (OSError, ValueError):  # gone, or not as we know it
        return None
    for controller, version in (("memory", 1), ("", 2)):
        if controller in paths and controller in mounts:
            mount_root, mount_point = mounts[controller]
            below = paths[controller].removeprefix(mount_root.rstrip("/")).lstrip("/")
            directory = root / mount_point.lstrip("/") / below
            if (directory / ("memory.oom_control" if version == 1 else "memory.events")).exists():
                return MemoryCgroup(directory, version)
    return None


def host_kills(root: Path = _ROOT) -> int | None:
    """How many processes of the whole machine the out-of-memory killer has ended since it started."""
    return _counter(root / "proc" / "vmstat", "oom_kill")


def host_total_bytes(root: Path = _ROOT) -> int | None:
    kilobytes = _counter(root / "proc" / "meminfo", "MemTotal:")
    return None if kilobytes is None else kilobytes * 1024


def host_available_bytes(root: Path = _ROOT) -> int | None:
    kilobytes = _counter(root / "proc" / "meminfo", "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def _controllers(text: str) -> list[tuple[str, str]]:
    """(controller, path) of each line of /proc/PID/cgroup; the controller of version 2 is ""."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.extend((controller, path) for controller in controllers.split(","))
    return found


def _mounts(text: str) -> dict[str, tuple[str, str]]:
    """Of /proc/PID/mountinfo, by controller: which part of the hierarchy is mounted, and where."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, mount_root, mount_point, *_ = before.split()
        if kind == "cgroup2":
            found.setdefault("", (mount_root, mount_point))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.setdefault("memory", (mount_root, mount_point))
    return found


def _counter(path: Path, name: str) -> int | None:
    """The number after a name, in a file of one name and number per line."""
    try:
        for line in path.read_text().splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # version 2 says "max"
        return None
