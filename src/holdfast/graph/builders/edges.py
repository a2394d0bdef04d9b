"""A graph of edges, each a source and a target: what most other sources come down to.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from holdfast.graph.arrays import Array, as_array, as_ids, as_weights, check_range, narrow
from holdfast.graph.builders import features
from holdfast.graph.graph import Graph, shared_graph
from holdfast.graph.topology import Topology


def build(
    edges: Any,
    num_nodes: int | None,
    edge_weights: Any,
    node_features: Mapping[str, Any],
    edge_features: Mapping[str, Any],
) -> Graph:
    sources, targets = read_pair("edges", edges)
    features.check_names(node_features, edge_features)
    count = _count(num_nodes, sources, targets, node_features)
    check_range("edges[0]", sources, count)
    check_range("edges[1]", targets, count)
    weights = None if edge_weights is None else as_weights("edge_weights", edge_weights, len(sources))
    read = features.read(node_features, edge_features, count, len(sources))
    return shared_graph(compress(sources, targets, count, weights), *read)


def compress(sources: Array, targets: Array, num_nodes: int, weights: Array | None) -> Topology:
    """The same edges, by target; those of one target in the order they were given in."""
    order = _order(targets, num_nodes)
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(targets, minlength=num_nodes), out=indptr[1:])
    if order is None:
        return Topology(indptr, narrow(sources, num_nodes), None, weights)
    weights = None if weights is None else weights[order]
    return Topology(indptr, narrow(sources[order], num_nodes), narrow(order, len(order)), weights)


def _order(targets: Array, num_nodes: int) -> Array | None:
    """What puts the edges into the order of their targets; None if they are in it."""
    count = len(targets)
    if count == 0 or bool((targets[1:] >= targets[:-1]).all()):
        return None
    bits = int(count - 1).bit_length()
    if bits + int(num_nodes).bit_length() > 63:
        return np.argsort(targets, kind="stable")
    keys = targets.astype(np.int64) << bits  # one number for both: much faster to sort than to sort stably
    keys |= np.arange(count)
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def read_pair(name: str, edges: Any) -> tuple[Array, Array]:
    """The two ends of edges, however they are given; not yet whether they are in range."""
    is_pair = isinstance(edges, tuple | list) and len(edges) == 2
    if not is_pair and not isinstance(edges, np.ndarray | torch.Tensor):
        kind = type(edges).__name__
        raise TypeError(f"{name} must be (sources, targets), or an array of the shape (2, edges), not {kind}")
    if not is_pair:
        edges = as_array(name, edges)
        if edges.ndim != 2 or len(edges) != 2:
            remedy = f"\n  try   {name}.T" if edges.ndim == 2 and edges.shape[1] == 2 else ""
            raise ValueError(f"{name} must have the shape (2, edges), not {edges.shape}{remedy}")
    sources, targets = as_ids(f"{name}[0]", edges[0]), as_ids(f"{name}[1]", edges[1])
    if len(sources) != len(targets):
        raise ValueError(f"{name}: there are {len(sources)} sources, but {len(targets)} targets")
    return sources, targets


def _count(num_nodes: int | None, sources: Array, targets: Array, node_features: Mapping[str, Any]) -> int:
    """As said; else as many as have features; else up to the last one that has an edge."""
    if num_nodes is None:
        for value in node_features.values():
            if len(np.shape(value)) > 0:
                return len(value)
        return 1 + max((int(array.max()) for array in (sources, targets) if len(array)), default=-1)
    try:
        count = operator.index(num_nodes)
    except TypeError:
        raise TypeError(f"num_nodes must be a whole number, not {num_nodes!r}") from None
    if count < 0:
        raise ValueError(f"num_nodes must not be negative, but is {count}")
    return count
