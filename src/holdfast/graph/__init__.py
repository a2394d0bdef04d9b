"""Neighbour sampling over one graph that all workers share: docs/graph.md.

    Graph (shared memory, or files) ──► NeighborLoader, LinkNeighborLoader ──► batches: PyG's, DGL's, or plain tensors

Importing this package imports neither torch nor numba: its names load on first use, and only the loaders need numba.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from holdfast.graph.batches import NeighborBatch
    from holdfast.graph.graph import Graph
    from holdfast.graph.links import LinkNeighborLoader
    from holdfast.graph.loader import NeighborLoader

__all__ = ["Graph", "LinkNeighborLoader", "NeighborBatch", "NeighborLoader"]

_HOME_OF = {
    "Graph": "holdfast.graph.graph",
    "LinkNeighborLoader": "holdfast.graph.links",
    "NeighborBatch": "holdfast.graph.batches",
    "NeighborLoader": "holdfast.graph.loader",
}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
