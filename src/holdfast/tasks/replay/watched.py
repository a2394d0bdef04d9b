"""The dataset as the worker of a replay has it: each sample is loaded, measured and described, and stays where it is.

What comes back is a `Loaded`, which is small: a sample that cannot be pickled can be replayed as well. The frames of
this module are holdfast's own, so that a diagnosis names the user's below them.

Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from holdfast.tasks.measuring import measured
from holdfast.tasks.replay import case, parts
from holdfast.tasks.replay.parts import Part


@dataclass(frozen=True, slots=True)
class Loaded:
    """A sample that was loaded."""

    parts: tuple[Part, ...]
    seconds: float
    peak_bytes: int | None
    """Of memory, above what the process had before; None where the system does not tell."""


def seed_all(seed: int) -> None:
    """Random numbers of torch, numpy and `random`, the same for every way to replay a sample."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def fetch(dataset: Any, index: Any, *, in_batches: bool) -> Any:
    """One sample as torch asks for it: in batches by `__getitems__` where the dataset has that."""
    if in_batches and callable(getattr(dataset, "__getitems__", None)):
        return dataset.__getitems__([index])[0]
    return dataset[index]


class WatchedSamples(Dataset[Loaded]):
    """A map-style dataset. The k-th sample that a worker loads has the seed `seed` + k."""

    def __init__(self, dataset: Any, seed: int, *, in_batches: bool, memray_file: str | None = None) -> None:
        self.dataset, self.seed, self.in_batches, self.memray_file = dataset, seed, in_batches, memray_file

    def __getitem__(self, index: Any) -> Loaded:
        seed_all(self.seed)
        self.seed += 1
        with _tracked(self.memray_file):
            return _loaded(lambda: fetch(self.dataset, index, in_batches=self.in_batches))


class WatchedElements(IterableDataset[Loaded | None]):
    """The part of one worker of an iterable dataset. Elements before those that are wanted come as None: each is an
    element of its own to the loader, with its own time.
    """

    def __init__(self, dataset: Any, wanted: case.Part, seed: int, memray_file: str | None = None) -> None:
        self.dataset, self.wanted, self.seed, self.memray_file = dataset, wanted, seed, memray_file

    def __iter__(self) -> Iterator[Loaded | None]:
        info = get_worker_info()
        if info is not None and info.id != self.wanted.worker_id:
            return
        seed_all(self.seed)
        elements = iter(self.dataset)
        with contextlib.suppress(StopIteration):  # it has fewer now: who asked for them sees that
            for _ in range(self.wanted.first):
                next(elements)
                yield None
            with _tracked(self.memray_file):
                for _ in range(self.wanted.first, self.wanted.last + 1):
                    loaded = _loaded(lambda: next(elements))
                    yield loaded


def _loaded(load: Callable[[], Any]) -> Loaded:
    sample, seconds, peak_bytes = measured(load)
    return Loaded(parts.parts_of(sample), seconds, peak_bytes)


def _tracked(file: str | None) -> contextlib.AbstractContextManager[object]:
    if file is None:
        return contextlib.nullcontext()
    import memray

    return memray.Tracker(destination=memray.FileDestination(file, overwrite=True), native_traces=True)
