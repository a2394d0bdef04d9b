"""A graph of a scipy sparse matrix or array. Every stored entry is an edge, also one that is stored twice, or a zero.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.graph.builders import edges
from holdfast.graph.graph import Graph


def build(matrix: Any, weighted: bool, node_features: Mapping[str, Any], edge_features: Mapping[str, Any]) -> Graph:
    if not hasattr(matrix, "tocoo"):
        raise TypeError(f"from_scipy takes a sparse matrix or array of scipy, not {type(matrix).__name__}")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"an adjacency matrix is square, but this one has the shape {matrix.shape}")
    entries = matrix.tocoo()
    weights = entries.data if weighted else None
    return edges.build((entries.row, entries.col), matrix.shape[0], weights, node_features, edge_features)
