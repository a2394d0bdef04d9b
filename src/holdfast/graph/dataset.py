"""The samples of a graph: `dataset[[17, 4]]` is the batch of the seed nodes 17 and 4.

A list of seeds is one call, so that nodes that two of them reach are there once. The loader gives it whole lists; if
one fails it asks for each seed alone to find out which it is, and then for the good ones together. What comes out is
the same: random numbers come from torch's generator, which the loader seeds, for the list, by seed, epoch and position
(`rng="sample"`).

Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from holdfast.graph.arrays import Array, as_ids, check_range
from holdfast.graph.batches import NeighborBatch, Tensors
from holdfast.graph.graph import Features, Graph
from holdfast.graph.outputs import Delivery
from holdfast.graph.sampling import HopSampler, Sampled, Settings
from holdfast.transport.collate import new_tensor


class Neighborhoods(Dataset[Any]):
    """Its length is the number of nodes; an index is a node, or a list of them."""

    def __init__(self, graph: Graph, settings: Settings, delivery: Delivery) -> None:
        self.graph = graph
        self.sampler = HopSampler(graph.topology, settings)
        self.delivery = delivery

    def __len__(self) -> int:
        return self.graph.num_nodes

    def __getitem__(self, seeds: Any) -> Any:
        nodes = self._checked(seeds)
        return self.delivery.of(self.batch_of(nodes, draw_key()))

    def _checked(self, indices: Any) -> Array:
        listed = indices if isinstance(indices, list) else [indices]
        nodes = as_ids("seeds", listed)
        check_range("seeds", nodes, len(self))
        return nodes

    def batch_of(self, nodes: Array, key: int) -> NeighborBatch:
        """What these seeds give with this key."""
        return self._with_features(self.sampler.sample(nodes, key), len(nodes))

    def _with_features(self, sampled: Sampled, batch_size: int) -> NeighborBatch:
        return NeighborBatch(
            sampled.n_id,
            sampled.edge_index,
            sampled.e_id,
            batch_size,
            sampled.num_sampled_nodes,
            sampled.num_sampled_edges,
            rows_of(self.graph.node_features, sampled.n_id),
            rows_of(self.graph.edge_features, sampled.e_id),
        )


def draw_key() -> int:
    """64 bits that decide all that is drawn for a batch."""
    high, low = torch.randint(1 << 32, (2,), device="cpu").tolist()
    return int(high) << 32 | int(low)


def rows_of(features: Features, where: torch.Tensor) -> Tensors:
    """The rows of some nodes or edges, written straight to where the batch will be."""
    gathered: Tensors = {}
    for name, values in features.items():
        shape = (len(where), *values.shape[1:])
        if isinstance(values, torch.Tensor):
            gathered[name] = torch.index_select(values, 0, where, out=new_tensor(values.dtype, shape))
        else:
            gathered[name] = rows = new_tensor(torch.from_numpy(np.empty(0, values.dtype)).dtype, shape)
            rows.numpy()[...] = values[where.numpy()]
    return gathered


def as_it_is(batch: Any) -> Any:
    """The collate function: the dataset has made a batch already."""
    return batch
