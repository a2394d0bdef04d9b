"""Whether there is memory for what is to be shared. Asked first: past a limit the kernel kills, it does not refuse.

Runs in: the process that shares.
"""

from __future__ import annotations

from holdfast.errors import SharedMemoryError
from holdfast.memory import cgroups
from holdfast.words import decimal_size


def headroom_bytes() -> int | None:
    """How much more this process may use, by its cgroup's limit and by what the machine has; None: not known."""
    return cgroups.left_bytes(cgroups.limited_cgroups_of("self"))


def refused(nbytes: int, headroom: int) -> SharedMemoryError:
    """The error where the headroom is too small."""
    needed, left = decimal_size(nbytes), decimal_size(headroom)
    return _no_room(f"{needed} more are needed, and {left} are left of the cgroup's limit or of the machine")


def refused_by_the_system(error: OSError) -> SharedMemoryError:
    """The error where the system has said so itself."""
    return _no_room(str(error.strerror or error))


def _no_room(why: str) -> SharedMemoryError:
    return SharedMemoryError(
        f"there is no room to share this: {why}\n"
        f"  try   share a smaller or more compact form (a narrower dtype, a part of the data), or\n"
        f"        read the data from a file in the workers (numpy.load(..., mmap_mode='r'))"
    )
