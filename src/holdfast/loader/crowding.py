"""More threads in workers than there are CPUs for: said once in a process, and only where torch does not say it.

torch compares the number of workers with the CPUs that this process may run on. It knows nothing of a cgroup's quota,
which is how containers are limited, nor of threads in a worker. Runs in: main process.
"""

from __future__ import annotations

import warnings

from holdfast import options
from holdfast.cpus import available_cpus, by_affinity
from holdfast.errors import HoldfastWarning

_looked_at: set[int] = set()
_warned: list[bool] = []


def warn_if_crowded(num_workers: int) -> None:
    """Called where workers are about to be started, by `DataLoader._get_iterator`."""
    if _warned or num_workers in _looked_at:
        return
    _looked_at.add(num_workers)
    message = find_crowding(num_workers, options.threads_per_worker(), available_cpus(), by_affinity())
    if message is not None:
        _warned.append(True)
        warnings.warn(message, HoldfastWarning, stacklevel=5)


def find_crowding(num_workers: int, threads: int, cpus: int, known_to_torch: int) -> str | None:
    """What to say, if anything. `known_to_torch` is with how many workers torch itself is content."""
    wanted = num_workers * threads
    if wanted <= cpus or num_workers > known_to_torch:
        return None
    each = "" if threads == 1 else f" with {threads} threads each, as the environment says,"
    quota = f": the machine shows {known_to_torch}, but a cgroup limits their time" if cpus < known_to_torch else ""
    return (
        f"{num_workers} workers{each} want {wanted} CPUs, and this process may use {cpus}{quota}. "
        f"More than that are slower, not faster: try DataLoader(..., num_workers={max(1, cpus // threads)})"
    )
