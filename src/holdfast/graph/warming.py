"""Compiling what a loader will need, before its workers are there.

Runs in: main process.
"""

from __future__ import annotations

import pickle

import numpy as np

from holdfast.graph import kernels
from holdfast.graph.arrays import Array
from holdfast.graph.sampling import HopSampler, Settings
from holdfast.graph.topology import Topology

_SMALL_INDPTR, _SMALL_INDICES, _SMALL_EDGES = (0, 1, 3), (1, 0, 1), (0, 1, 2)


def compile_for(sampler: HopSampler) -> None:
    """Sample from a graph of two nodes whose arrays have the same types: its kernels are then compiled."""
    try:
        HopSampler(small_like(sampler.topology), _one_hop(sampler.settings)).sample(np.array([0, 1]), 0)
    except (pickle.UnpicklingError, EOFError) as error:  # a file that a crash of the machine has cut off
        folder = kernels.count.stats.cache_path  # type: ignore[attr-defined]
        error.add_note(f"numba's cache is damaged\n  try   rm -r {folder}")
        raise


def small_like(topology: Topology) -> Topology:
    """A graph with two nodes and three edges."""
    return Topology(
        _like(topology.indptr, _SMALL_INDPTR),
        _like(topology.indices, _SMALL_INDICES),
        None if topology.edge_ids is None else _like(topology.edge_ids, _SMALL_EDGES),
        None if topology.edge_weights is None else _like(topology.edge_weights, _SMALL_EDGES),
    )


def _like(array: Array, values: tuple[int, ...]) -> Array:
    small = np.array(values, array.dtype)
    small.flags.writeable = False
    return small


def _one_hop(settings: Settings) -> Settings:
    return Settings((1,), settings.replace, settings.directed, settings.weighted, settings.layered)
