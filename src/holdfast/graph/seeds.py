"""Where an epoch starts from: the nodes that the user names, and samplers that give them.

Samplers give positions among what the user named, as torch's do; the loader is given the nodes themselves, so that
whatever is said of a sample, in messages, in `skipped_samples` or in a `skipped_file`, names the node.

Runs in: main process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import RandomSampler, SequentialSampler

from holdfast.graph.arrays import Array, as_array, as_ids, check_range


def input_nodes_of(input_nodes: Any, num_nodes: int) -> Array | range:
    """Nodes, checked: of None all, of a mask those that are True."""
    if input_nodes is None:
        return range(num_nodes)
    if isinstance(input_nodes, range):
        input_nodes = np.arange(input_nodes.start, input_nodes.stop, input_nodes.step)
    array = as_array("input_nodes", input_nodes)
    if array.dtype == np.bool_:
        if array.shape != (num_nodes,):
            raise ValueError(f"input_nodes, as a mask, must have the shape ({num_nodes},), not {array.shape}")
        return np.flatnonzero(array)
    nodes = np.array(as_ids("input_nodes", input_nodes))  # the user's may change
    check_range("input_nodes", nodes, num_nodes)
    return nodes


_CHUNK = 1024


class NodesOf(torch.utils.data.Sampler[Any]):
    """Another sampler's positions, or lists of positions, as what lies there. All else is the other sampler's."""

    def __init__(self, sampler: Any, nodes: Array | range) -> None:
        self.sampler = sampler
        self.nodes = nodes

    def __iter__(self) -> Iterator[Any]:
        return self._many_at_once() if type(self.sampler) in (RandomSampler, SequentialSampler) else self._each()

    def _each(self) -> Iterator[Any]:
        for given in self.sampler:
            yield [self._at(position) for position in given] if _is_many(given) else self._at(given)

    def _many_at_once(self) -> Iterator[int]:
        """Torch's own samplers do not mind being asked ahead, and give positions that are in range."""
        positions = iter(self.sampler)
        while chunk := list(itertools.islice(positions, _CHUNK)):
            yield from (chunk if isinstance(self.nodes, range) else self.nodes[chunk].tolist())

    def _at(self, position: Any) -> int:
        at = int(position)
        if not 0 <= at < len(self.nodes):
            raise IndexError(f"the sampler gave {at}, but there are {len(self.nodes)} input nodes")
        return int(self.nodes[at])

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "sampler" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["sampler"], name)  # set_epoch, above all


def _is_many(given: Any) -> bool:
    return isinstance(given, list | tuple) or (hasattr(given, "__len__") and getattr(given, "ndim", 1) > 0)
