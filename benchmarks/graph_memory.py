"""Measure the unique memory of workers that sample from a large graph, or load next to nothing, in this fresh process.

Run by `graph.py` as `python -m benchmarks.graph_memory METHOD graph|nothing`. Prints, as JSON, the mean unique memory
(USS) of a worker in mid-epoch.
Runs in: a main process of its own; re-imported by the workers it spawns, so nothing happens at import.
"""

from __future__ import annotations

import json
import sys
from statistics import fmean
from typing import Any

import psutil
import torch
from torch.utils.data import Dataset

import holdfast

from .graph_data import BATCH, FANOUTS, NODES, make_arrays
from .loaders import iterating
from .worker_memory import uss

WORKERS, WARM_UP, READINGS = 2, 20, 20


class Nothing(Dataset[int]):
    """A dataset that holds nothing and does nothing."""

    def __len__(self) -> int:
        return NODES

    def __getitem__(self, index: int) -> int:
        return index


def main() -> None:
    """Print {"worker_bytes": ...}."""
    method, what = sys.argv[1:]
    torch.set_num_threads(1)
    how: dict[str, Any] = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    with iterating(make_loader(what, {"batch_size": BATCH, "num_workers": WORKERS, **how})) as iterator:
        for _ in range(WARM_UP):
            next(iterator)
        readings = [read(iterator) for _ in range(READINGS)]
    print(json.dumps({"worker_bytes": fmean(readings)}))


def make_loader(what: str, options: dict[str, Any]) -> Any:
    if what == "nothing":
        return holdfast.DataLoader(Nothing(), **options)
    from holdfast.graph import Graph, NeighborLoader

    return NeighborLoader(Graph.from_csc(*make_arrays()), FANOUTS, **options)


def read(iterator: Any) -> float:
    for _ in range(2):
        next(iterator)
    return fmean(uss(psutil.Process(worker.pid)) for worker in iterator._workers)


if __name__ == "__main__":
    main()
