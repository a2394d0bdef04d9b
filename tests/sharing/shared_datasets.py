"""Datasets over shared data, and what their workers can say about it.

Runs in: the test process, and (the datasets) the workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from torch.utils.data import Dataset

import holdfast
from holdfast import DataLoader

METHODS = ("fork", "spawn", "forkserver", "portable")
LENGTH = 64


@dataclasses.dataclass(frozen=True)
class Columns:
    numbers: Any
    names: Any


class Pair(NamedTuple):
    first: Any
    second: Any


def texts() -> list[str]:
    return [f"text {index}" for index in range(LENGTH)]


def sparse_matrix() -> Any:
    import scipy.sparse

    return scipy.sparse.csr_matrix(np.diag(np.arange(LENGTH) + 1.0))


def table() -> Any:
    import pyarrow

    return pyarrow.table({"number": list(range(LENGTH)), "name": texts()})


# What is shared, and the sample that has the number `index` of it: a number that is known from the index alone.
KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any, int], float]]] = {
    "array": (lambda: np.arange(LENGTH * 3).reshape(LENGTH, 3), lambda x, index: x[index][0] / 3),
    "structured array": (
        lambda: np.array([(index, -index) for index in range(LENGTH)], [("a", "i4"), ("b", "f8")]),
        lambda x, index: -x["b"][index],
    ),
    "tensor": (lambda: torch.arange(LENGTH), lambda x, index: x[index].item()),
    "bytes": (lambda: bytes(range(LENGTH)), lambda x, index: x[index]),
    "list of numbers": (lambda: list(range(LENGTH)), lambda x, index: x[index]),
    "list of texts": (texts, lambda x, index: int(x[index].split()[1])),
    "list of dicts": (
        lambda: [
            {"label": index, "x": np.full(1000, index), "t": torch.full((100,), index)} for index in range(LENGTH)
        ],
        lambda x, index: (x[index]["label"] + x[index]["x"][-1] + x[index]["t"][-1].item()) / 3,
    ),
    "part of a list": (lambda: holdfast.share([-1, *range(LENGTH)])[1:], lambda x, index: x[index]),
    "dict": (lambda: {f"k{index}": index for index in range(LENGTH)}, lambda x, index: x[f"k{index}"]),
    "dict of arrays": (
        lambda: {"x": np.arange(LENGTH), "y": torch.arange(LENGTH)},
        lambda x, index: (x["x"][index] + x["y"][index].item()) / 2,
    ),
    "dataclass": (
        lambda: Columns(np.arange(LENGTH), texts()),
        lambda x, index: (x.numbers[index] + int(x.names[index].split()[1])) / 2,
    ),
    "named tuple": (
        lambda: Pair(np.arange(LENGTH), (torch.arange(LENGTH),)),
        lambda x, index: x.second[0][index].item(),
    ),
    "sparse matrix": (sparse_matrix, lambda x, index: x[index, index] - 1),
    "table": (table, lambda x, index: x["number"][index].as_py()),
}


class Looking(Dataset[Any]):
    """Sample `index` of something shared, by what `KINDS` says."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.data = holdfast.share(KINDS[kind][0]())

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> float:
        return float(KINDS[self.kind][1](self.data, index))


class Calling(Dataset[Any]):
    """Sample `index` is what a function says of the data in the worker that is asked."""

    def __init__(self, data: Any, function: Callable[[Any, int], Any], length: int = 8) -> None:
        self.data = data
        self.function = function
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.function(self.data, index)


def load(dataset: Dataset[Any], method: str, **options: Any) -> DataLoader[Any]:
    """A loader with two workers, which are started by a method or by the portable backend."""
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    return DataLoader(dataset, **{"num_workers": 2, "batch_size": None, **how, **options})


# -- what a worker says ------------------------------------------------------------------------------------------------


def look_at_all(data: Any, index: int) -> int:
    """Touch everything; the unique memory of the worker then."""
    checksum = int(data.sum()) if isinstance(data, np.ndarray) else sum(map(len, data))
    assert checksum >= 0
    return int(psutil.Process().memory_full_info().uss)


def descriptors_and_mappings(data: Any, index: int) -> tuple[int, int]:
    """How many descriptors of segments there are in the worker, and how many mappings."""
    of_segments = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of this very loop
            of_segments += str(link.readlink()).startswith("/memfd:holdfast-shared")
    return of_segments, Path("/proc/self/maps").read_text().count("/memfd:holdfast-shared")


def write_and_read(data: torch.Tensor, index: int) -> tuple[float, float]:
    """Write to a tensor in place; what was there before, and after."""
    before = float(data[0])
    data[0] += 1
    return before, float(data[0])


def refusals(data: Any, index: int) -> list[str]:
    """What a write to each of the things in the data says."""
    said = []
    for thing in data:
        try:
            thing[0] = 1
        except (TypeError, ValueError) as error:
            said.append(str(error).splitlines()[0])
    return said
