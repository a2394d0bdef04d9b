"""Picking edges by weight, compiled by numba.

Without replacement by the way of Efraimidis and Spirakis: each edge draws an exponential time with its weight as rate,
and the earliest are taken. That is the same as drawing one after the other among what is left. An edge of weight zero
is never taken, also where all are (-1). Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.graph.compiling import inline, kernel
from holdfast.graph.kernels import _GOLDEN, BAD_NODE, Array, mixed, unit


@inline
def _counts(weight: Any) -> Any:
    """Whether an edge of this weight can be taken. What is no good weight, in a file that was not checked, cannot."""
    return weight > 0 and weight < math.inf


@kernel
def count_weighted(  # noqa: PLR0917
    indptr: Array,
    num_edges: int,
    frontier: Array,
    fanout: int,
    replace: bool,
    weights: Array,
    starts: Array,
    degrees: Array,
    offsets: Array,
) -> int:
    """As `kernels.count`, where only edges with a weight count."""
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
        candidates = 0
        for position in range(start, start + degree):
            if _counts(weights[position]):
                candidates += 1
        if fanout < 0 or (not replace and candidates <= fanout):
            total += candidates
        elif candidates > 0:
            total += fanout
    offsets[len(frontier)] = total
    return total


@kernel
def pick_weighted(  # noqa: PLR0917
    starts: Array,
    degrees: Array,
    offsets: Array,
    first_target: int,
    fanout: int,
    replace: bool,
    key: Any,
    weights: Array,
    scratch: Array,
    positions: Array,
    targets: Array,
) -> None:
    """For each node the positions of its picks. `scratch`: room for the degree of any of them."""
    state = np.uint64(key)
    for place in range(len(starts)):
        at, end = offsets[place], offsets[place + 1]
        start, degree = starts[place], degrees[place]
        for slot in range(at, end):
            targets[slot] = first_target + place
        if at == end:
            continue
        if replace and fanout >= 0:
            state = _draw(start, degree, weights, state, scratch, positions[at:end])
        else:
            state = _take_earliest(start, degree, weights, state, scratch, positions[at:end])


@kernel
def _draw(  # noqa: PLR0917
    start: int, degree: int, weights: Array, state: Any, cumulative: Array, picks: Array
) -> Any:
    """With replacement: by where a random number falls among the sums of the weights."""
    largest, last = 0.0, 0
    for k in range(degree):
        if _counts(weights[start + k]):
            largest = max(largest, weights[start + k])
            last = k
    total = 0.0
    for k in range(degree):
        if _counts(weights[start + k]):
            total += weights[start + k] / largest  # of the largest, so that no sum overflows
        cumulative[k] = total
    for slot in range(len(picks)):
        state += _GOLDEN
        at = (1.0 - unit(mixed(state))) * total
        low, high = 0, last  # the last that can be taken: where rounding went past all sums
        while low < high:
            middle = (low + high) >> 1
            if cumulative[middle] > at:
                high = middle
            else:
                low = middle + 1
        picks[slot] = start + low
    return state


@kernel
def _take_earliest(  # noqa: PLR0917
    start: int, degree: int, weights: Array, state: Any, times: Array, picks: Array
) -> Any:
    """Without replacement: the earliest, kept in a heap with the latest of them on top."""
    wanted, kept, largest = len(picks), 0, 0.0
    for position in range(start, start + degree):
        if _counts(weights[position]):
            largest = max(largest, weights[position])
    for position in range(start, start + degree):
        if not _counts(weights[position]):
            continue
        state += _GOLDEN
        time = -math.log(unit(mixed(state))) * (largest / weights[position])
        if kept < wanted:
            hole = kept
            kept += 1
            while hole > 0 and times[(hole - 1) >> 1] < time:
                times[hole], picks[hole] = times[(hole - 1) >> 1], picks[(hole - 1) >> 1]
                hole = (hole - 1) >> 1
            times[hole], picks[hole] = time, position
        elif time < times[0]:
            hole, child = 0, 1
            while child < wanted:
                if child + 1 < wanted and times[child + 1] > times[child]:
                    child += 1
                if times[child] <= time:
                    break
                times[hole], picks[hole] = times[child], picks[child]
                hole, child = child, 2 * child + 1
            times[hole], picks[hole] = time, position
    return state
