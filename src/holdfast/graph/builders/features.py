"""The features of nodes and edges: their names, and what they are.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from holdfast.graph.arrays import as_features
from holdfast.graph.batches import NeighborBatch
from holdfast.graph.graph import Features

OURS = frozenset(dir(NeighborBatch)) | {field.name for field in fields(NeighborBatch)}
"""What batches have besides the features."""
LINKS = frozenset({"edge_label_index", "edge_label", "input_id", "src_index", "dst_pos_index", "dst_neg_index"})


def check_names(node_names: Mapping[str, Any], edge_names: Mapping[str, Any]) -> None:
    for kind, names in (("node_features", node_names), ("edge_features", edge_names)):
        if not isinstance(names, Mapping):
            raise TypeError(f"{kind} must be a dict of names and arrays, not {type(names).__name__}")
        for name in names:
            if not str(name).isidentifier() or name.startswith("_"):
                raise ValueError(
                    f"{kind}: {name!r} cannot be the name of a feature: it becomes an attribute of batches"
                )
            if name in OURS or name in LINKS:
                raise ValueError(f"{kind}: {name!r} is something else in a batch: give the feature another name")
    both = sorted(set(node_names) & set(edge_names))
    if both:
        raise ValueError(f"{both[0]!r} is in both node_features and edge_features: give one of them another name")


def read(
    node_features: Mapping[str, Any], edge_features: Mapping[str, Any], num_nodes: int, num_edges: int
) -> tuple[Features, Features]:
    """Checked, as tensors, not yet shared."""
    check_names(node_features, edge_features)
    nodes = {n: as_features(f"node_features[{n!r}]", v, num_nodes, "nodes") for n, v in node_features.items()}
    edges = {n: as_features(f"edge_features[{n!r}]", v, num_edges, "edges") for n, v in edge_features.items()}
    return nodes, edges
