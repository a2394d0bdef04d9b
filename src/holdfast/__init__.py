"""holdfast: a PyTorch data loader that survives its workers and is many times faster than the stock one.

Importing this package has no effects and does not import torch: the public names load on first use.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from holdfast import graph as graph
    from holdfast import metrics as metrics
    from holdfast.cpus import available_cpus
    from holdfast.errors import (
        HoldfastError,
        HoldfastWarning,
        InternalError,
        NotPicklable,
        SharedMemoryError,
        TooManyRestarts,
        TooManySkipped,
        WorkerCrashed,
        WorkerError,
        WorkerInitError,
        WorkerOutOfMemory,
        WorkerTimeout,
    )
    from holdfast.events import on_incident
    from holdfast.incident import Incident
    from holdfast.launch.spawn import spawn
    from holdfast.loader.dataloader import DataLoader
    from holdfast.loader.skips import SkippedSample
    from holdfast.loader.stats import LoaderStats
    from holdfast.pool.executor import ProcessPoolExecutor
    from holdfast.pool.mapping import FailedItem, map
    from holdfast.sharing.share import share

__version__ = "0.1.1"

__all__ = [
    "DataLoader",
    "FailedItem",
    "HoldfastError",
    "HoldfastWarning",
    "Incident",
    "InternalError",
    "LoaderStats",
    "NotPicklable",
    "ProcessPoolExecutor",
    "SharedMemoryError",
    "SkippedSample",
    "TooManyRestarts",
    "TooManySkipped",
    "WorkerCrashed",
    "WorkerError",
    "WorkerInitError",
    "WorkerOutOfMemory",
    "WorkerTimeout",
    "available_cpus",
    "map",
    "on_incident",
    "share",
    "spawn",
]

_HOME_OF = dict.fromkeys(__all__, "holdfast.errors") | {
    "DataLoader": "holdfast.loader.dataloader",
    "FailedItem": "holdfast.pool.mapping",
    "Incident": "holdfast.incident",
    "LoaderStats": "holdfast.loader.stats",
    "ProcessPoolExecutor": "holdfast.pool.executor",
    "map": "holdfast.pool.mapping",
    "available_cpus": "holdfast.cpus",
    "on_incident": "holdfast.events",
    "share": "holdfast.sharing.share",
    "SkippedSample": "holdfast.loader.skips",
    "spawn": "holdfast.launch.spawn",
}

_PACKAGES = ("graph", "metrics")  # with public names of their own


def __getattr__(name: str) -> object:
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
