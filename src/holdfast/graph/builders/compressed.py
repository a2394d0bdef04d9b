"""A graph of arrays that are compressed already: CSC as it is, CSR turned round.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.graph.arrays import Array, as_ids, as_weights, check_indptr, check_range, narrow
from holdfast.graph.builders import features
from holdfast.graph.builders.edges import compress
from holdfast.graph.graph import Graph, shared_graph
from holdfast.graph.topology import Topology


def build_csc(  # noqa: PLR0917
    indptr: Any,
    indices: Any,
    edge_ids: Any,
    edge_weights: Any,
    node_features: Mapping[str, Any],
    edge_features: Mapping[str, Any],
) -> Graph:
    starts, sources = _read(indptr, indices)
    count = len(sources)
    numbers = None if edge_ids is None else _edge_ids(edge_ids, count)
    weights = None if edge_weights is None else as_weights("edge_weights", edge_weights, count)
    topology = Topology(starts, narrow(sources, len(starts) - 1), numbers, weights)
    return shared_graph(topology, *features.read(node_features, edge_features, topology.num_nodes, count))


def build_csr(
    indptr: Any,
    indices: Any,
    edge_weights: Any,
    node_features: Mapping[str, Any],
    edge_features: Mapping[str, Any],
) -> Graph:
    starts, targets = _read(indptr, indices)
    num_nodes, count = len(starts) - 1, len(targets)
    sources = np.repeat(np.arange(num_nodes), np.diff(starts))
    weights = None if edge_weights is None else as_weights("edge_weights", edge_weights, count)
    topology = compress(sources, targets, num_nodes, weights)
    return shared_graph(topology, *features.read(node_features, edge_features, num_nodes, count))


def _read(indptr: Any, indices: Any) -> tuple[Array, Array]:
    starts, ends = as_ids("indptr", indptr), as_ids("indices", indices)
    check_indptr("indptr", starts, len(ends))
    check_range("indices", ends, len(starts) - 1)
    return np.ascontiguousarray(starts, np.int64), ends


def _edge_ids(edge_ids: Any, count: int) -> Array:
    numbers = as_ids("edge_ids", edge_ids)
    if len(numbers) != count:
        raise ValueError(f"edge_ids must have one number for each of {count} edges, not {len(numbers)}")
    check_range("edge_ids", numbers, count, "edges")
    return narrow(numbers, count)
