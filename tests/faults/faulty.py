"""What goes wrong in the fault table: a `Fault`, and datasets and functions that call it at one place each.

A fault never strikes the main process, which makes and pickles these objects too. Each strike leaves a mark in the
file system first: a row in which nobody was struck proves nothing.

Runs in: the workers, and where modules are imported, their supervisor.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

LENGTH = 12
BATCH_SIZE = 2
NUM_WORKERS = 2
BAD = 7
"""The sample at which faults strike: in every dataset here the second of its batch, and of the second worker."""

MESSAGE = "this is the fault"
EXIT_STATUS = 3


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in a process that is not the main one: at every call, or only at the first."""

    how: str
    once: bool
    mark: Path
    main_pid: int

    def strike(self) -> None:
        if os.getpid() == self.main_pid:
            return
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            if self.once:
                return
        _do(self.how)

    def has_struck(self) -> bool:
        return self.mark.exists()


def _do(how: str) -> None:
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
    elif how == "exception":
        raise ValueError(MESSAGE)
    elif how == "os._exit":
        os._exit(EXIT_STATUS)
    elif how == "sys.exit":
        sys.exit(EXIT_STATUS)
    elif how == "endless loop":
        while True:
            time.sleep(0.001)  # leaves the machine's cores to the other rows
    elif how == "supervisor killed":
        _kill_parent()
    else:
        assert how == "unpicklable result", how


def _kill_parent() -> None:
    parent = os.getppid()
    assert parent > 1
    os.kill(parent, signal.SIGKILL)
    while True:  # the kernel ends this worker with it
        time.sleep(0.001)


# -- before the first sample -------------------------------------------------------------------------------------------


class StrikesWhenLoaded:
    """Kept by a dataset: strikes where the dataset is unpickled."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.fault.strike()


IMPORTED = """\
import os
from pathlib import Path

from faulty import Fault

Fault({how!r}, {once!r}, Path({mark!r}), {main_pid!r}).strike()


class FromHere:
    pass
"""
"""A module that strikes when it is imported."""


def write_module(directory: Path, name: str, fault: Fault) -> None:
    text = IMPORTED.format(how=fault.how, once=fault.once, mark=str(fault.mark), main_pid=fault.main_pid)
    (directory / f"{name}.py").write_text(text)


@dataclass(frozen=True)
class Init:
    """A worker_init_fn that strikes at once, or leaves a strike for the worker's end."""

    fault: Fault
    at_the_end: bool

    def __call__(self, worker_id: int) -> None:
        if self.at_the_end:
            Finalize(None, self.fault.strike, exitpriority=1)
        else:
            self.fault.strike()


# -- samples -----------------------------------------------------------------------------------------------------------


class Faulty:
    """What all datasets here keep. `where` is the row's *when*; `cargo` is whatever else must travel with them."""

    def __init__(self, fault: Fault, where: str, cargo: object = None) -> None:
        self.fault = fault
        self.where = where
        self.cargo = cargo

    def _load(self, index: int) -> torch.Tensor:
        if index == BAD and self.where == "getitem":
            self.fault.strike()
        return torch.tensor(index)

    def _end(self, worker_id: int) -> None:
        if self.where == "end of epoch" and worker_id == NUM_WORKERS - 1:
            self.fault.strike()


class Map(Faulty, Dataset[torch.Tensor]):
    """One sample a call."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._load(index)


class MapOfMany(Map):
    """Many samples a call."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self._load(index) for index in indices]


def _share() -> tuple[int, int]:
    """Which worker this is, and of how many."""
    info = get_worker_info()
    assert info is not None
    return info.id, info.num_workers


class Generated(Faulty, IterableDataset[torch.Tensor]):
    """Worker w of n yields w, w + n, w + 2n... by a generator, which an exception ends."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        first, step = _share()
        for value in range(first, LENGTH, step):
            yield self._load(value)
        self._end(first)


class Iterated(Faulty, IterableDataset[torch.Tensor]):
    """The same by an iterator of its own class, which goes on after an exception."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return _Elements(self, *_share())


class _Elements(Iterator[torch.Tensor]):
    def __init__(self, dataset: Iterated, first: int, step: int) -> None:
        self.dataset, self.worker_id = dataset, first
        self.values = iter(range(first, LENGTH, step))
        self.has_ended = False

    def __next__(self) -> torch.Tensor:
        value = next(self.values, None)
        if value is not None:
            return self.dataset._load(value)
        if not self.has_ended:
            self.has_ended = True
            self.dataset._end(self.worker_id)
        raise StopIteration


# -- batches -----------------------------------------------------------------------------------------------------------


class Parcel:
    """A batch that strikes when it is sent."""

    def __init__(self, values: torch.Tensor, fault: Fault) -> None:
        self.values = values
        self.fault = fault

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        values: object = self.values
        if BAD in self.values:
            self.fault.strike()
            if self.fault.how == "unpicklable result":
                values = (number for number in self.values)
        return Parcel, (values, self.fault)


@dataclass(frozen=True)
class Collate:
    """A collate_fn that strikes over the batch of the bad sample, or makes of it what strikes when it is sent."""

    fault: Fault
    where: str

    def __call__(self, samples: Any) -> object:
        values = samples.reshape(1) if isinstance(samples, torch.Tensor) else torch.stack(samples)
        if self.where == "sending":
            return Parcel(values, self.fault)
        if self.where == "collate" and BAD in values:
            self.fault.strike()
        return values


def values_of(batch: Any) -> list[int]:
    """The samples of a delivered batch."""
    values: list[int] = (batch.values if isinstance(batch, Parcel) else batch).tolist()
    return values
