"""Graphs for tests, loaders over them, and a sampler that is slow and plain.

Runs in: the test process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from holdfast.graph import Graph, NeighborBatch, NeighborLoader
from holdfast.workers.rng import mix

METHODS = ("fork", "spawn", "forkserver", "portable")
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def random_graph(num_nodes: int = 300, num_edges: int = 3000, seed: int = 0, **options: Any) -> Graph:
    """Edges anywhere, self loops and multiple edges among them."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, num_edges))
    return Graph.from_edges(edges, num_nodes=num_nodes, **options)


def featured_graph(**options: Any) -> Graph:
    """Features that say whose they are."""
    nodes, edges = 300, 3000
    return random_graph(
        nodes,
        edges,
        node_features={"x": torch.arange(nodes * 2.0).view(nodes, 2), "y": torch.arange(nodes) % 7},
        edge_features={"edge_attr": torch.arange(edges)},
        **options,
    )


def edge_set(graph: Graph) -> dict[int, tuple[int, int]]:
    """By number: where an edge comes from and leads to."""
    edges = {}
    for node in range(graph.num_nodes):
        sources, numbers = graph.in_edges(node)
        edges.update({int(number): (int(source), node) for source, number in zip(sources, numbers, strict=True)})
    return edges


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}


def epochs(loader: Any, count: int = 1) -> list[Any]:
    with loader:
        return [batch for _ in range(count) for batch in loader]


def seeded_epochs(graph: Graph, count: int = 1, **options: Any) -> list[Any]:
    """Batches of a loader whose seed is always the same."""
    torch.manual_seed(5)
    settings = {"batch_size": 32, "shuffle": True, **options}
    return epochs(NeighborLoader(graph, settings.pop("num_neighbors", [4, 3]), **settings), count)


def are_equal(one: NeighborBatch, other: NeighborBatch) -> bool:
    names = ("n_id", "edge_index", "e_id")
    tensors = all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)
    extras = one.extras.keys() == other.extras.keys()
    extras = extras and all(torch.equal(value, other.extras[name]) for name, value in one.extras.items())
    return tensors and extras and one.batch_size == other.batch_size


def all_equal(ones: list[Any], others: list[Any]) -> bool:
    return len(ones) == len(others) and all(map(are_equal, ones, others))


# -- slow and plain ----------------------------------------------------------------------------------------------------


class Draws:
    """The random numbers of one hop."""

    def __init__(self, key: int, hop: int) -> None:
        self.state = mix(key, hop)

    def bits(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        z = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        return int((self.bits() >> 11) * (1.0 / (1 << 53)) * bound)


def slow_picks(degree: int, fanout: int, replace: bool, draws: Draws) -> list[int]:
    """Which of a node's edges are taken."""
    if fanout < 0 or (not replace and degree <= fanout):
        return list(range(degree))
    if degree == 0:
        return []
    if replace:
        return [draws.below(degree) for _ in range(fanout)]
    picked: list[int] = []
    for top in range(degree - fanout, degree):
        number = draws.below(top + 1)
        picked.append(top if number in picked else number)
    return picked


def slow_sample(
    graph: Graph, seeds: list[int], fanouts: list[int], key: int, *, replace: bool = False, layered: bool = False
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Nodes, and (source, target, number) of edges, as numbers within the batch."""
    nodes, number_of = list(seeds), {}
    for number, node in enumerate(nodes):
        number_of.setdefault(node, number)
    edges = []
    first = 0
    for hop, fanout in enumerate(fanouts):
        draws, picked = Draws(key, hop), []
        for target in range(first, len(nodes)):
            sources, ids = graph.in_edges(nodes[target])
            for pick in slow_picks(len(sources), fanout, replace, draws):
                picked.append((int(sources[pick]), target, int(ids[pick])))
        first = 0 if layered else len(nodes)
        for source, target, edge in picked:
            if source not in number_of:
                number_of[source] = len(nodes)
                nodes.append(source)
            edges.append((number_of[source], target, edge))
    return nodes, edges
