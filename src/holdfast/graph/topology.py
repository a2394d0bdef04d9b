"""Who is whose neighbour: the edges of one kind, by the node they lead to.

    indptr   0 2 2 5 ...      the edges that lead to node v are number indptr[v] up to indptr[v + 1]
    indices  7 3 0 1 9 ...    where each of them comes from

This is the CSC form of the adjacency matrix with a row for each source: messages flow along edges, so what is sampled
for a node are the edges that lead to it, as in PyG and DGL. Nothing here ever changes.

A graph with several kinds of nodes and edges would have one of these for each kind of edge; there is one, now.
Runs in: any process.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from holdfast.graph import mapped
from holdfast.graph.arrays import Array


@dataclass(frozen=True, eq=False)
class Topology:
    """Arrays in shared memory, or mapped files. Edges have the number that they were given in, as `edge_ids` has it."""

    indptr: Array  # int64
    indices: Array  # int32 or int64
    edge_ids: Array | None = None  # int32 or int64; None: they were given in this order
    edge_weights: Array | None = None  # float32 or float64, in this order

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def ids_of(self, positions: Array) -> Array:
        """The numbers, as given, of edges at positions of ours."""
        return positions if self.edge_ids is None else self.edge_ids[positions]

    def in_edges(self, node: int) -> tuple[Array, Array]:
        """The sources of the edges that lead to a node, and the numbers of these edges."""
        if not 0 <= node < self.num_nodes:
            raise IndexError(f"node {node} is out of range: there are {self.num_nodes} nodes")
        start, end = int(self.indptr[node]), int(self.indptr[node + 1])
        return self.indices[start:end], self.ids_of(np.arange(start, end))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: mapped.closed(getattr(self, field.name)) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _read_only(mapped.opened(value)))


def _read_only(array: Any) -> Any:
    """What was too small to be shared, and arrived as a copy. Kernels are compiled for read-only arrays."""
    if isinstance(array, np.ndarray) and array.flags.writeable:
        array.flags.writeable = False
    return array
