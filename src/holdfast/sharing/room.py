"""Whether there is memory for what is to be shared. Asked first: past a limit the kernel kills, it does not refuse.

Runs in: the process that shares.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import SharedMemoryError
from holdfast.memory import cgroups


def headroom_bytes() -> int | None:
    """How much more this process may use, by its cgroup's limit and by what the machine has; None: not known."""
    rooms = [room for room in (_left_in_cgroup(), cgroups.host_available_bytes()) if room is not None]
    return min(rooms, default=None)


def refused(nbytes: int, headroom: int) -> SharedMemoryError:
    """The error where the headroom is too small."""
    return _no_room(
        f"{in_words(nbytes)} more are needed, and {in_words(headroom)} are left of the cgroup's limit or of the machine"
    )


def refused_by_the_system(error: OSError) -> SharedMemoryError:
    """The error where the system has said so itself."""
    return _no_room(str(error.strerror or error))


def _no_room(why: str) -> SharedMemoryError:
    return SharedMemoryError(
        f"there is no room to share this: {why}\n"
        f"  try   share a smaller or more compact form (a narrower dtype, a part of the data), or\n"
        f"        read the data from a file in the workers (numpy.load(..., mmap_mode='r'))"
    )


def in_words(nbytes: int) -> str:
    size, unit = float(nbytes), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"


def _left_in_cgroup() -> int | None:
    cgroup = cgroups.memory_cgroup_of("self")
    if cgroup is None:
        return None
    limit, usage = cgroup.limit_bytes(), cgroup.usage_bytes()
    if limit is None or usage is None:
        return None
    return max(0, limit - usage + _reclaimable_bytes(cgroup.directory))


def _reclaimable_bytes(directory: Path) -> int:
    """Pages of files that nobody uses count as used, but go when memory is wanted."""
    try:
        stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
        return int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0
