"""A graph of a NetworkX graph. NetworkX itself is not imported here: the object is asked.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.graph.builders import edges
from holdfast.graph.graph import Graph


def build(graph: Any, edge_weights: str | None, node_features: Sequence[str], edge_features: Sequence[str]) -> Graph:
    if not hasattr(graph, "is_directed") or not hasattr(graph, "adjacency"):
        raise TypeError(f"from_networkx takes a NetworkX graph, not {type(graph).__name__}")
    numbers = {name: number for number, name in enumerate(graph)}
    listed = list(graph.edges(data=True))
    if not graph.is_directed():
        listed += [(v, u, facts) for u, v, facts in listed if u != v]
    pairs = np.array([(numbers[u], numbers[v]) for u, v, _ in listed], np.int64).reshape(-1, 2)
    facts = [facts for _, _, facts in listed]
    weights = None if edge_weights is None else _column("edge", facts, edge_weights)
    of_nodes = {name: _column("node", [graph.nodes[node] for node in graph], name) for name in node_features}
    of_edges = {name: _column("edge", facts, name) for name in edge_features}
    return edges.build((pairs[:, 0], pairs[:, 1]), len(numbers), weights, of_nodes, of_edges)


def _column(kind: str, facts: list[dict[str, Any]], name: str) -> Any:
    """One attribute of all of them."""
    for number, one in enumerate(facts):
        if name not in one:
            raise KeyError(f"{kind} {number} of the graph has no attribute {name!r}")
    return np.array([np.asarray(one[name]) for one in facts])
