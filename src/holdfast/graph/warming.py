"""Compiling what a loader will need, before its workers are there.

Runs in: main process.
"""

from __future__ import annotations

import numpy as np

from holdfast.graph.sampling import HopSampler, Settings
from holdfast.graph.topology import Topology

_SMALL_INDPTR, _SMALL_INDICES = (0, 1, 3), (1, 0, 1)


def compile_for(sampler: HopSampler) -> None:
    """Sample from a graph of two nodes whose arrays have the same types: its kernels are then compiled."""
    HopSampler(small_like(sampler.topology), _one_hop(sampler.settings)).sample(np.array([0, 1]), 0)


def small_like(topology: Topology) -> Topology:
    """A graph with two nodes and three edges."""
    weights = topology.edge_weights
    arrays = [
        np.array(_SMALL_INDPTR, topology.indptr.dtype),
        np.array(_SMALL_INDICES, topology.indices.dtype),
        *([] if weights is None else [np.ones(3, weights.dtype)]),
    ]
    for array in arrays:
        array.flags.writeable = False
    return Topology(arrays[0], arrays[1], None, arrays[2] if weights is not None else None)


def _one_hop(settings: Settings) -> Settings:
    return Settings((1,), settings.replace, settings.directed, settings.weighted, settings.layered)
