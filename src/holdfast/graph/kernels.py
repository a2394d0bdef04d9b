"""The inner loops of neighbour sampling, compiled by numba.

One hop of a batch is three calls, each a loop whose reads do not wait for each other:

    count     how many edges each node of the frontier gets, so that what follows is written where it stays
    pick      which: positions in the graph's arrays (`pick_uniform`; by weight, in `weighted.py`)
    relabel   their sources, as numbers within the batch

Random numbers are splitmix64's, from a key that the caller gives: nothing else decides what is drawn. Every index that
is read from the graph is checked before it is used, because a graph may lie in a file: then a negative number comes
back that says where (`BAD_*`).

Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.graph.compiling import inline, kernel
from holdfast.graph.prefetching import prefetch

Array = Any  # numpy's, of the types that numba sees

BAD_NODE = -1
"""The edges of a node, as indptr has them, are not within the graph: -1 - (place in the frontier)."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31, _S32, _S33 = (np.uint64(bits) for bits in (11, 27, 30, 31, 32, 33))
_UNIT = 1.0 / (1 << 53)
_ONE = np.uint64(1)
_BITS = 64  # neighbours of one node of which it can be kept in one word which were picked
_FEW = 32  # picks of one node among which a linear search is fastest
_AHEAD = 16  # edges whose rows of the hash table are asked for before they are needed


# -- random numbers ----------------------------------------------------------------------------------------------------


@inline
def mixed(state: Any) -> Any:
    """64 random bits of a state; the next state is this one plus `_GOLDEN`."""
    z = (state ^ (state >> _S30)) * _FACTOR_1
    z = (z ^ (z >> _S27)) * _FACTOR_2
    return z ^ (z >> _S31)


@inline
def below(bits: Any, bound: int) -> Any:
    """A number from 0 to bound - 1."""
    return np.int64(np.float64(bits >> _S11) * _UNIT * bound)


@inline
def unit(bits: Any) -> Any:
    """A number above 0 and up to 1."""
    return (np.float64(bits >> _S11) + 1.0) * _UNIT


# -- counting ----------------------------------------------------------------------------------------------------------


@kernel
def count(  # noqa: PLR0917  (numba takes no keywords at this speed)
    indptr: Array,
    num_edges: int,
    frontier: Array,
    fanout: int,
    replace: bool,
    starts: Array,
    degrees: Array,
    offsets: Array,
) -> int:
    """Where the edges of each node start, how many there are, and where its picks go. Returns the number of picks."""
    total = 0
    for place in range(len(frontier)):
        node = frontier[place]
        start, end = indptr[node], indptr[node + 1]
        if start < 0 or end < start or end > num_edges:
            return BAD_NODE - place
        degree = end - start
        starts[place] = start
        degrees[place] = degree
        offsets[place] = total
        if fanout < 0 or (not replace and degree <= fanout):
            total += degree
        elif degree > 0:
            total += fanout
    offsets[len(frontier)] = total
    return total


# -- picking -----------------------------------------------------------------------------------------------------------


@kernel
def pick_uniform(  # noqa: PLR0912, PLR0917
    starts: Array,
    degrees: Array,
    offsets: Array,
    first_target: int,
    fanout: int,
    replace: bool,
    key: Any,
    marks: Array,
    positions: Array,
    targets: Array,
) -> None:
    """For each node its edges' positions, each subset or sequence with equal chances.

    Without replacement by Floyd's way: as many draws as picks. `marks`: room for a hash set of the picks of one node.
    """
    state = np.uint64(key)
    mask = len(marks) - 1
    for place in range(len(starts)):
        at, end = offsets[place], offsets[place + 1]
        start, degree = starts[place], degrees[place]
        for slot in range(at, end):
            targets[slot] = first_target + place
        if fanout < 0 or (not replace and degree <= fanout):
            for slot in range(at, end):
                positions[slot] = start + slot - at
        elif replace:
            for slot in range(at, end):
                state += _GOLDEN
                positions[slot] = start + below(mixed(state), degree)
        elif degree <= _BITS:
            taken = np.uint64(0)
            for slot in range(at, end):
                top = degree - end + slot
                state += _GOLDEN
                picked = below(mixed(state), top + 1)
                if (taken >> np.uint64(picked)) & _ONE:
                    picked = top
                taken |= _ONE << np.uint64(picked)
                positions[slot] = start + picked
        elif end - at <= _FEW:
            for slot in range(at, end):
                top = degree - end + slot
                state += _GOLDEN
                picked = start + below(mixed(state), top + 1)
                for other in range(at, slot):
                    if positions[other] == picked:
                        picked = start + top
                        break
                positions[slot] = picked
        else:
            marks[:] = -1
            for slot in range(at, end):
                top = degree - end + slot
                state += _GOLDEN
                picked = below(mixed(state), top + 1)
                if not _mark(marks, mask, picked):
                    picked = top
                    _mark(marks, mask, picked)
                positions[slot] = start + picked


@kernel
def _mark(marks: Array, mask: int, value: int) -> bool:
    """Add to a hash set; whether it was not there."""
    slot = np.int64((np.uint64(value) * _GOLDEN) >> _S32) & mask
    while marks[slot] >= 0:
        if marks[slot] == value:
            return False
        slot = (slot + 1) & mask
    marks[slot] = value
    return True


# -- numbers within the batch ------------------------------------------------------------------------------------------
#
# A hash table with open addressing, of 2**bits rows. A row has the number of a node within the batch, and above that
# some bits of the node's hash, so that another node is nearly always told without looking it up; -1: the row is free.
# It is small beside an array with a place for every node of the graph, which each worker would have for itself.


@inline
def bits_of(table: Array) -> Any:
    bits = 0
    while (1 << bits) < len(table):
        bits += 1
    return bits


@inline
def first_row(node: Any, bits: Any) -> Any:
    """Where to look for a node first: by the high bits of its hash, which are the best ones."""
    return np.int64((np.uint64(node) * _GOLDEN) >> np.uint64(64 - bits))


@inline
def tag_of(node: Any, bits: Any) -> Any:
    """The bits of its hash that are kept, after those of the row."""
    return np.int64((np.uint64(node) * _GOLDEN) >> _S33) & ((1 << (31 - bits)) - 1)


@inline
def row_of(table: Array, bits: Any, nodes: Array, node: Any) -> Any:
    """Where a node is; if it is not there, the free row where it would be."""
    row = first_row(node, bits)
    tag = tag_of(node, bits)
    while table[row] >= 0:
        if (table[row] >> bits) == tag and nodes[number_in(table, bits, row)] == node:
            break
        row = (row + 1) & (len(table) - 1)
    return row


@inline
def number_in(table: Array, bits: Any, row: Any) -> Any:
    return np.int64(table[row]) & ((1 << bits) - 1)


@kernel
def enter(table: Array, nodes: Array) -> None:
    """Enter nodes under their numbers; of one that is there twice, the first counts."""
    bits = bits_of(table)
    for number in range(len(nodes)):
        row = row_of(table, bits, nodes, nodes[number])
        if table[row] < 0:
            table[row] = (tag_of(nodes[number], bits) << bits) | number


@kernel
def give_numbers(edge_ids: Array, positions: Array) -> None:
    """In place: the numbers that edges were given with, for their positions in the graph's arrays."""
    for place in range(len(positions)):
        positions[place] = edge_ids[positions[place]]


@kernel
def relabel(  # noqa: PLR0917
    indices: Array, num_nodes: int, positions: Array, table: Array, nodes: Array, known: int, sources: Array
) -> int:
    """The sources of edges as numbers within the batch; new ones are added to `nodes`, in the order they are met.

    Returns how many nodes there are then, or -1 - (place) of an edge whose source is no node of the graph.
    `nodes` and `table` have room for as many new nodes as there can be, and `table` more rows than there are numbers.
    """
    bits = bits_of(table)
    mask = low = len(table) - 1  # what `row_of` does, written out: a third faster
    for place in range(len(positions)):
        sources[place] = indices[positions[place]]
    for place in range(len(positions)):
        if place + _AHEAD < len(positions):
            prefetch(table, first_row(sources[place + _AHEAD], bits))
        node = sources[place]
        if node < 0 or node >= num_nodes:
            return -1 - place
        row, tag = first_row(node, bits), tag_of(node, bits)
        while True:
            entry: Any = np.int64(table[row])
            if entry < 0:
                number = known
                table[row] = (tag << bits) | known
                nodes[known] = node
                known += 1
                break
            if (entry >> bits) == tag:
                number = entry & low
                if nodes[number] == node:
                    break
            row = (row + 1) & mask
        sources[place] = number
    return known
