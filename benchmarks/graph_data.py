"""The graph that sampling is measured on, the same in every process, and how numpy would sample from it.

Runs in: main, and the probes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NODES, EDGES = 1_000_000, 20_000_000
FANOUTS = (15, 10)
BATCH = 1024
Array = Any


def make_arrays() -> tuple[Array, Array]:
    """Sources by target: indptr and indices. Edges lie anywhere."""
    rng = np.random.default_rng(0)
    indptr = np.zeros(NODES + 1, np.int64)
    np.cumsum(np.bincount(rng.integers(0, NODES, EDGES), minlength=NODES), out=indptr[1:])
    return indptr, rng.integers(0, NODES, EDGES, dtype=np.int32)


def seed_lists(count: int) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.choice(NODES, BATCH, replace=False) for _ in range(count)]


def sample_with_numpy(indptr: Array, indices: Array, seeds: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Without replacement, relabelled: the nodes, and the edges as numbers within the batch; no loop over nodes.

    A random number for each edge of the frontier, in a matrix with a row for each node; of each row the smallest are
    taken. That is the fastest of the ways we know in numpy for degrees like these.
    """
    frontier, sources, targets = seeds, [], []
    for fanout in FANOUTS:
        starts = indptr[frontier]
        degrees = indptr[frontier + 1] - starts
        columns = np.arange(degrees.max())
        draws = rng.random((len(frontier), len(columns)), dtype=np.float32)
        draws[columns >= degrees[:, None]] = 2
        picks = np.argpartition(draws, fanout, axis=1)[:, :fanout]
        is_pick = np.take_along_axis(draws, picks, axis=1) < 2
        sources.append(indices[(starts[:, None] + picks)[is_pick]])
        targets.append(np.broadcast_to(frontier[:, None], picks.shape)[is_pick])
        frontier = np.setdiff1d(sources[-1], seeds)
    ends = np.concatenate([*sources, *targets])
    nodes, numbers = np.unique(np.concatenate([seeds, ends]), return_inverse=True)
    return nodes, numbers[len(seeds) :].reshape(2, -1)
