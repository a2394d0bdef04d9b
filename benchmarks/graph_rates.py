"""Measure sampling from a large graph, in this fresh process, and print every rate as JSON.

Run by `graph.py` as `python -m benchmarks.graph_rates ROUNDS BATCHES`. In one process: numpy, DGL (where it can be
imported) and ours in turn, in batches per second of CPU time, each on one thread. Through the loader: no workers and
two in turn, in batches per second.
Runs in: a main process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from holdfast.graph import Graph, NeighborLoader

from .graph_data import BATCH, FANOUTS, NODES, make_arrays, sample_with_numpy, seed_lists
from .loaders import iterating

WARM_UP = 12
Sample = Callable[[Any], object]


def main() -> None:
    """Print {"one_process": {name: rates}, "loader": {name: rates}, "no_dgl": why not, or ""}."""
    rounds, batches = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    indptr, indices = make_arrays()
    graph = Graph.from_csc(indptr, indices)
    contenders, no_dgl = contend(graph, indptr, indices)
    seeds = seed_lists(batches)
    one_process: dict[str, list[float]] = {name: [] for name in contenders}
    loader: dict[str, list[float]] = {"one process": [], "2 workers": []}
    for number in range(rounds):
        for name in sorted(contenders, reverse=number % 2 == 1):
            one_process[name].append(cpu_rate(contenders[name], seeds))
        for name in sorted(loader, reverse=number % 2 == 1):
            loader[name].append(loader_rate(graph, 2 if name == "2 workers" else 0, batches))
    print(json.dumps({"one_process": one_process, "loader": loader, "no_dgl": no_dgl}))


def contend(graph: Graph, indptr: Any, indices: Any) -> tuple[dict[str, Sample], str]:
    """Who samples how; and why DGL does not, if it does not."""
    rng = np.random.default_rng(2)
    ours = NeighborLoader(graph, FANOUTS, batch_size=BATCH).dataset
    contenders: dict[str, Sample] = {
        "numpy": lambda seeds: sample_with_numpy(indptr, indices, seeds, rng),
        "ours": lambda seeds: ours.batch_of(seeds, 7),
    }
    try:
        contenders["DGL"] = dgl_sampler(indptr, indices)
    except Exception as error:
        return contenders, f"{type(error).__name__}: {error}"
    return contenders, ""


def dgl_sampler(indptr: Any, indices: Any) -> Sample:
    """DGL's own sampler over the same arrays; it counts hops from the other end."""
    import dgl

    ends = torch.from_numpy(indptr), torch.from_numpy(indices).long(), torch.empty(0, dtype=torch.int64)
    graph = dgl.graph(("csc", ends), num_nodes=NODES)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)))
    return lambda seeds: sampler.sample_blocks(graph, torch.from_numpy(seeds))


def cpu_rate(sample: Sample, seeds: list[Any]) -> float:
    """Batches per second of this process's CPU time."""
    sample(seeds[0])
    start = time.process_time()
    for one in seeds:
        sample(one)
    return len(seeds) / (time.process_time() - start)


def loader_rate(graph: Graph, workers: int, batches: int) -> float:
    """Batches per second through the loader, warmed up."""
    loader = NeighborLoader(graph, FANOUTS, batch_size=BATCH, shuffle=True, num_workers=workers)
    with iterating(loader) as iterator:
        for _ in range(WARM_UP):
            next(iterator)
        start = time.perf_counter()
        for _ in range(2 * batches):
            next(iterator)
        return 2 * batches / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
