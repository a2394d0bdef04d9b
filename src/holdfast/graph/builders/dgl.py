"""A graph of a DGL graph, which is not changed. DGL itself is not imported here: the object is asked.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

from typing import Any

from holdfast.graph.builders import edges
from holdfast.graph.graph import Graph


def build(graph: Any, edge_weights: str | None) -> Graph:
    if not all(hasattr(graph, name) for name in ("edges", "ndata", "edata", "num_nodes")):
        raise TypeError(f"from_dgl takes a DGL graph, not {type(graph).__name__}")
    if not getattr(graph, "is_homogeneous", True):
        raise ValueError("only homogeneous graphs can be sampled\n  try   dgl.to_homogeneous(graph)")
    sources, targets = graph.edges(order="eid")
    node_features, edge_features = _users(graph.ndata), _users(graph.edata)
    weights = take_weights(edge_features, edge_weights, "edata")
    return edges.build((sources, targets), int(graph.num_nodes()), weights, node_features, edge_features)


def _users(features: Any) -> dict[str, Any]:
    """Without DGL's own, such as `_ID`."""
    return {name: value for name, value in features.items() if not name.startswith("_")}


def take_weights(edge_features: dict[str, Any], name: str | None, where: str) -> Any:
    """The one that is called so; it stays a feature as well."""
    if name is None:
        return None
    if name not in edge_features:
        known = ", ".join(map(repr, sorted(edge_features))) or "nothing"
        raise KeyError(f"edge_weights={name!r}: {where} has {known}")
    return edge_features[name]
