"""What is looked up among the edges of nodes, compiled by numba: the edges within a batch, and pairs without an edge.

Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.graph.compiling import kernel
from holdfast.graph.kernels import _GOLDEN, Array, below, bits_of, mixed, number_in, row_of


@kernel
def edges_within(  # noqa: PLR0917
    indptr: Array, indices: Array, table: Array, nodes: Array, positions: Array, sources: Array, targets: Array
) -> int:
    """All edges that lead from one of the nodes to another, as numbers within the batch. Returns how many there are.

    With arrays that are too short nothing is written beyond them: the number says how long they have to be.
    """
    bits = bits_of(table)
    found = 0
    for target in range(len(nodes)):
        node = nodes[target]
        for position in range(max(indptr[node], 0), min(indptr[node + 1], len(indices))):
            row = row_of(table, bits, nodes, indices[position])
            if table[row] >= 0:
                if found < len(positions):
                    positions[found] = position
                    sources[found] = number_in(table, bits, row)
                    targets[found] = target
                found += 1
    return found


@kernel
def draw_apart(  # noqa: PLR0917
    indptr: Array, indices: Array, key: Any, tries: int, given_sources: Array, sources: Array, targets: Array
) -> None:
    """Pairs of nodes without an edge from the one to the other, as far as that is found out in so many tries.

    `given_sources`: the source of each; where it is empty sources are drawn as well.
    """
    state = np.uint64(key)
    num_nodes = len(indptr) - 1
    for pair in range(len(targets)):
        for _ in range(tries):
            state += _GOLDEN
            source = below(mixed(state), num_nodes) if len(given_sources) == 0 else given_sources[pair]
            state += _GOLDEN
            target = below(mixed(state), num_nodes)
            sources[pair] = source
            targets[pair] = target
            is_edge = source == target
            for position in range(max(indptr[target], 0), min(indptr[target + 1], len(indices))):
                if indices[position] == source:
                    is_edge = True
                    break
            if not is_edge:
                break
