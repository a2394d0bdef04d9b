"""A graph of `.npy` files, which are mapped: only what is sampled is read.

Runs in: the process that makes a graph.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.graph.arrays import Array, check_indptr, check_range, check_weights, is_of_torch
from holdfast.graph.builders import features
from holdfast.graph.graph import Features, Graph
from holdfast.graph.mapped import map_file
from holdfast.graph.topology import Topology

Source = str | os.PathLike[str]


def build(  # noqa: PLR0917
    indptr: Source,
    indices: Source,
    edge_ids: Source | None,
    edge_weights: Source | None,
    node_features: Mapping[str, Source],
    edge_features: Mapping[str, Source],
    check: bool,
) -> Graph:
    starts = _map("indptr", indptr, (np.int64,))
    sources = _map("indices", indices, (np.int32, np.int64))
    numbers = None if edge_ids is None else _map("edge_ids", edge_ids, (np.int32, np.int64), len(sources))
    weights = (
        None if edge_weights is None else _map("edge_weights", edge_weights, (np.float32, np.float64), len(sources))
    )
    topology = Topology(starts, sources, numbers, weights)
    if not len(starts):
        check_indptr("indptr", starts, 0)  # says what is wrong with it
    if check:
        _check(topology)
    features.check_names(node_features, edge_features)
    return Graph(
        topology,
        _map_features("node_features", node_features, topology.num_nodes, "nodes"),
        _map_features("edge_features", edge_features, topology.num_edges, "edges"),
    )


def _map(name: str, path: Source, dtypes: tuple[type, ...], length: int | None = None) -> Array:
    array = map_file(name, path)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "one dimension" if length is None else f"the shape ({length},)"
        raise ValueError(f"{name} must have {wanted}, not {array.shape}")
    if array.dtype not in dtypes:
        wanted = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        remedy = f"numpy.save(path, array.astype('{np.dtype(dtypes[-1]).name}'))"
        raise TypeError(f"{name} must be {wanted} to be mapped, not {array.dtype}\n  try   {remedy}")
    return array


def _map_features(kind: str, paths: Mapping[str, Source], count: int, what: str) -> Features:
    mapped: Features = {}
    for name, path in paths.items():
        array = map_file(f"{kind}[{name!r}]", path)
        if array.ndim < 1 or len(array) != count or not is_of_torch(array.dtype):
            wanted = f"one row of numbers, of a type that torch has, for each of {count} {what}"
            raise ValueError(f"{kind}[{name!r}] must have {wanted}, not {array.dtype} of the shape {array.shape}")
        mapped[name] = array
    return mapped


def _check(topology: Topology) -> None:
    check_indptr("indptr", topology.indptr, topology.num_edges)
    check_range("indices", topology.indices, topology.num_nodes)
    if topology.edge_ids is not None:
        check_range("edge_ids", topology.edge_ids, topology.num_edges, "edges")
    if topology.edge_weights is not None:
        check_weights("edge_weights", topology.edge_weights)


def save(graph: Graph, folder: Source) -> dict[str, Any]:
    """Write every array to a file of its own."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    arguments: dict[str, Any] = {}
    for name in ("indptr", "indices", "edge_ids", "edge_weights"):
        array = getattr(graph.topology, name)
        if array is not None:
            arguments[name] = _write(place / f"{name}.npy", array)
    for kind in ("node_features", "edge_features"):
        arguments[kind] = {
            name: _write(place / f"{kind}.{name}.npy", np.asarray(value))
            for name, value in getattr(graph, kind).items()
        }
    return arguments


def _write(path: Path, array: Array) -> Path:
    """Whole, or not at all: a file of that name may be mapped, also by the very graph that is written."""
    unfinished = path.with_suffix(".unfinished.npy")
    np.save(unfinished, array, allow_pickle=False)
    return unfinished.replace(path)
