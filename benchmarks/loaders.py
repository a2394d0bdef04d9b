"""The loaders that are compared, and one way to build each of them for a workload.

holdfast is imported only when its loader is asked for: a process that measures torch's loader must be in the state
that a user of torch has, and so must the workers that it spawns.
Runs in: main.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset, RandomSampler

from .workloads import Workload

LoaderName = Literal["torch", "holdfast"]
LOADERS: tuple[LoaderName, LoaderName] = ("torch", "holdfast")
EPOCHS = 1000


def loader_class(name: LoaderName) -> type[DataLoader[Any]]:
    """Return torch's DataLoader or ours."""
    if name == "torch":
        return DataLoader
    import holdfast

    ours: type[DataLoader[Any]] = holdfast.DataLoader
    return ours


def make_loader(
    name: LoaderName, workload: Workload, dataset: Dataset[Any], workers: int, method: str = "fork"
) -> DataLoader[Any]:
    """Build the named loader for a workload; the start method is given so that it does not depend on the platform."""
    arguments: dict[str, Any] = {
        "batch_size": workload.batch_size,
        "sampler": endless_shuffle(dataset) if workload.shuffle else None,
        "collate_fn": workload.collate_fn,
        "num_workers": workers,
        **workload.arguments,
    }
    if workers:
        arguments["multiprocessing_context"] = method
    if name == "holdfast":
        arguments.update(workload.holdfast_arguments)
    return loader_class(name)(dataset, **arguments)


def endless_shuffle(dataset: Any) -> RandomSampler:
    """Return what `shuffle=True` gives, permutation after permutation: no pass may run into the end of its epoch."""
    return RandomSampler(dataset, num_samples=EPOCHS * len(dataset))


@contextmanager
def iterating(loader: DataLoader[Any]) -> Iterator[Iterator[Any]]:
    """Give an iterator of the loader, and stop its workers at the end, as both loaders' iterators know how to."""
    iterator = iter(loader)
    try:
        yield iterator
    finally:
        shutdown = getattr(iterator, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()
