"""A graph of PyG's `Data`, which is not changed. PyG itself is not imported here: the object is asked.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

from typing import Any

import torch

from holdfast.graph.builders import edges
from holdfast.graph.builders.dgl import take_weights
from holdfast.graph.builders.features import LINKS
from holdfast.graph.graph import Graph

_NO_FEATURES = LINKS | {"edge_index"}  # links to learn from, of PyG's RandomLinkSplit, may be as many as edges


def build(data: Any, edge_weights: str | None) -> Graph:
    if hasattr(data, "node_types"):
        raise ValueError("only homogeneous graphs can be sampled\n  try   data.to_homogeneous()")
    if not hasattr(data, "is_node_attr"):
        raise TypeError(f"from_pyg takes a torch_geometric.data.Data, not {type(data).__name__}")
    if data.edge_index is None:
        remedy = (
            "data.edge_index = torch.stack(data.adj_t.t().coo()[:2])" if "adj_t" in data else "data.edge_index = ..."
        )
        raise ValueError(f"this Data has no edge_index\n  try   {remedy}")
    dense = {name: value for name, value in data.items() if name not in _NO_FEATURES and _has_rows(data, name, value)}
    node_features = {name: value for name, value in dense.items() if data.is_node_attr(name)}
    edge_features = {name: value for name, value in dense.items() if data.is_edge_attr(name)}
    weights = take_weights(edge_features, edge_weights, "this Data")
    return edges.build(data.edge_index, data.num_nodes, weights, node_features, edge_features)


def _has_rows(data: Any, name: str, value: Any) -> bool:
    """Whether its first dimension is the one that has one for each of something; of other edges it is the last."""
    if not isinstance(value, torch.Tensor):
        return False
    along = data.__cat_dim__(name, value)
    return isinstance(along, int) and value.ndim > 0 and along % value.ndim == 0
