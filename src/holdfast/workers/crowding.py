"""More threads in workers than there are CPUs for: said once in a process, and only where torch does not say it.

torch compares the number of a loader's workers with the CPUs that this process may run on. It knows nothing of a
cgroup's quota, which is how containers are limited, nor of threads in a worker, nor of our `map`.
Runs in: main process.
"""

from __future__ import annotations

import warnings

from holdfast import options
from holdfast.cpus import available_cpus, by_affinity
from holdfast.errors import HoldfastWarning

_looked_at: set[tuple[int, str]] = set()
_warned: list[bool] = []


def warn_if_crowded(num_workers: int, call: str, *, torch_warns: bool, stacklevel: int) -> None:
    """Called where workers are about to be started. `call`: what the user wrote, up to the arguments."""
    if _warned or (num_workers, call) in _looked_at:
        return
    _looked_at.add((num_workers, call))
    cpus, shown = available_cpus(), by_affinity()
    message = find_crowding(num_workers, options.threads_per_worker(), cpus, shown, call, torch_warns=torch_warns)
    if message is not None:
        _warned.append(True)
        warnings.warn(message, HoldfastWarning, stacklevel=stacklevel + 1)


def find_crowding(
    num_workers: int, threads: int, cpus: int, shown: int, call: str = "DataLoader", *, torch_warns: bool = True
) -> str | None:
    """What to say, if anything. `shown`: the CPUs that the machine shows, which is all that torch knows of."""
    wanted = num_workers * threads
    if wanted <= cpus or (torch_warns and num_workers > shown):
        return None
    each = "" if threads == 1 else f" with {threads} threads each, as the environment says,"
    quota = f": the machine shows {shown}, but a cgroup limits their time" if cpus < shown else ""
    return (
        f"{num_workers} workers{each} want {wanted} CPUs, and this process may use {cpus}{quota}. "
        f"More than that are slower, not faster: try {call}(..., num_workers={max(1, cpus // threads)})"
    )
