"""`Graph`: topology and features of a graph, one copy for all processes.

    edges, scipy, DGL, PyG, NetworkX ──► arrays, checked ──► holdfast.share, once ──► Graph
    .npy files ──► mapped, checked ─────────────────────────────────────────────────► Graph

A graph never changes. Sent to a worker, under any start method, it is a handle of a few hundred bytes.
Runs in: any process (made in the main process).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from holdfast.graph import mapped
from holdfast.graph.arrays import Array, as_ids, check_range
from holdfast.graph.topology import Topology
from holdfast.sharing.share import share

Features = dict[str, Any]  # by name: a tensor in shared memory, or a mapped array; one row for each node or edge


class Graph:
    """A homogeneous, directed graph in shared memory. Make one with one of the `from_...` functions.

    Nodes are numbered from 0. Edges are numbered in the order they were given in: `e_id` in batches, and the rows of
    edge features, are these numbers.
    """

    __slots__ = ("__weakref__", "edge_features", "node_features", "topology")

    def __init__(self, topology: Topology, node_features: Features, edge_features: Features) -> None:
        self.topology = topology
        self.node_features = node_features
        self.edge_features = edge_features

    # -- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        *,
        num_nodes: int | None = None,
        edge_weights: Any = None,
        node_features: Mapping[str, Any] | None = None,
        edge_features: Mapping[str, Any] | None = None,
    ) -> Graph:
        """Of edges: a pair (sources, targets), or an array or tensor of the shape (2, edges), as PyG's `edge_index`."""
        from holdfast.graph.builders import edges as builder

        return builder.build(edges, num_nodes, edge_weights, _given(node_features), _given(edge_features))

    @classmethod
    def from_csc(
        cls,
        indptr: Any,
        indices: Any,
        *,
        edge_ids: Any = None,
        edge_weights: Any = None,
        node_features: Mapping[str, Any] | None = None,
        edge_features: Mapping[str, Any] | None = None,
    ) -> Graph:
        """Of sources, by target: `indices[indptr[v]:indptr[v + 1]]` are the nodes with an edge to v.

        `edge_weights` are in the order of `indices`; edge features in that of `edge_ids`, where these are given.
        """
        from holdfast.graph.builders import compressed as builder

        return builder.build_csc(indptr, indices, edge_ids, edge_weights, _given(node_features), _given(edge_features))

    @classmethod
    def from_csr(
        cls,
        indptr: Any,
        indices: Any,
        *,
        edge_weights: Any = None,
        node_features: Mapping[str, Any] | None = None,
        edge_features: Mapping[str, Any] | None = None,
    ) -> Graph:
        """Of targets, by source: `indices[indptr[u]:indptr[u + 1]]` are the nodes to which u has an edge."""
        from holdfast.graph.builders import compressed as builder

        return builder.build_csr(indptr, indices, edge_weights, _given(node_features), _given(edge_features))

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        weighted: bool = False,
        node_features: Mapping[str, Any] | None = None,
        edge_features: Mapping[str, Any] | None = None,
    ) -> Graph:
        """Of a sparse matrix: an entry in row u and column v is an edge from u to v; `weighted`: and its weight."""
        from holdfast.graph.builders import scipy as builder

        return builder.build(matrix, weighted, _given(node_features), _given(edge_features))

    @classmethod
    def from_dgl(cls, graph: Any, *, edge_weights: str | None = None) -> Graph:
        """Of a homogeneous DGL graph, with all of `ndata` and `edata`. `edge_weights`: which of `edata` they are."""
        from holdfast.graph.builders import dgl as builder

        return builder.build(graph, edge_weights)

    @classmethod
    def from_pyg(cls, data: Any, *, edge_weights: str | None = None) -> Graph:
        """Of PyG's `Data`, with all that has a row for each node or edge. `edge_weights`: which of it they are."""
        from holdfast.graph.builders import pyg as builder

        return builder.build(data, edge_weights)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        edge_weights: str | None = None,
        node_features: Sequence[str] = (),
        edge_features: Sequence[str] = (),
    ) -> Graph:
        """Of a NetworkX graph. Node k is `list(graph)[k]`. An undirected edge becomes two. Features are attributes."""
        from holdfast.graph.builders import networkx as builder

        return builder.build(graph, edge_weights, node_features, edge_features)

    @classmethod
    def from_npy(
        cls,
        indptr: str | os.PathLike[str],
        indices: str | os.PathLike[str],
        *,
        edge_ids: str | os.PathLike[str] | None = None,
        edge_weights: str | os.PathLike[str] | None = None,
        node_features: Mapping[str, str | os.PathLike[str]] | None = None,
        edge_features: Mapping[str, str | os.PathLike[str]] | None = None,
        check: bool = True,
    ) -> Graph:
        """Of `.npy` files that are mapped, for graphs larger than memory; the arrays are those of `from_csc`.

        `check` reads the topology and the weights once. What is then wrong, because it was not checked or has changed
        since, is an error when a sample comes across it.
        """
        from holdfast.graph.builders import npy as builder

        features = _given(node_features), _given(edge_features)
        return builder.build(indptr, indices, edge_ids, edge_weights, *features, check)

    def save_npy(self, folder: str | os.PathLike[str]) -> dict[str, Any]:
        """Write `.npy` files into a folder, which is made; returns the arguments of `from_npy` that open them."""
        from holdfast.graph.builders import npy as builder

        return builder.save(self, folder)

    # -- reading it ------------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    @property
    def num_edges(self) -> int:
        return self.topology.num_edges

    def in_edges(self, node: int) -> tuple[Array, Array]:
        """The sources of the edges that lead to a node, and the numbers of these edges."""
        return self.topology.in_edges(node)

    def in_degrees(self, nodes: Any = None) -> Array:
        """How many edges lead to each node, or to each of some."""
        indptr = self.topology.indptr
        if nodes is None:
            return np.diff(indptr)
        nodes = as_ids("nodes", nodes)
        check_range("nodes", nodes, self.num_nodes)
        degrees: Array = indptr[nodes + 1] - indptr[nodes]
        return degrees

    def __repr__(self) -> str:
        parts = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}"]
        if self.topology.edge_weights is not None:
            parts.append("weighted")
        parts += [f"{name}={_form(value)}" for name, value in {**self.node_features, **self.edge_features}.items()]
        return f"Graph({', '.join(parts)})"

    def __getstate__(self) -> tuple[Any, ...]:
        closed = [{name: mapped.closed(value) for name, value in features.items()} for features in self._features()]
        return self.topology, *closed

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.topology = state[0]
        self.node_features, self.edge_features = (
            {name: mapped.opened(value) for name, value in features.items()} for features in state[1:]
        )

    def _features(self) -> tuple[Features, Features]:
        return self.node_features, self.edge_features


def shared_graph(topology: Topology, node_features: Features, edge_features: Features) -> Graph:
    """A graph of arrays and tensors that are checked: all of them go into one segment."""
    arrays = (topology.indptr, topology.indices, topology.edge_ids, topology.edge_weights)
    shared, nodes, edges = share((arrays, tuple(node_features.values()), tuple(edge_features.values())))
    for array in shared:
        if array is not None:
            array.flags.writeable = False  # an empty one is not shared
    return Graph(
        Topology(*shared), dict(zip(node_features, nodes, strict=True)), dict(zip(edge_features, edges, strict=True))
    )


def _given(features: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if features is None else features


def _form(value: Any) -> str:
    kind = str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else value.dtype
    return f"{kind}{list(value.shape)}"
