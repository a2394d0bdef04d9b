"""One batch: from seed nodes, hop by hop, to a subgraph.

    seeds ──count, pick, relabel──► their neighbours ──count, pick, relabel──► theirs ──► ...

What comes out depends on the graph, the seeds, the settings and the key, and on nothing else. What is kept between
batches (the hash table, the list of nodes) is private to the process and small: a few megabytes for a batch with
150,000 nodes, whatever the size of the graph. The bulk of a batch is written straight to the slot it travels in.

Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from holdfast.graph import among, kernels, weighted
from holdfast.graph.arrays import INT32_MAX, Array
from holdfast.graph.topology import Topology
from holdfast.transport.collate import new_tensor
from holdfast.workers.rng import mix

_ROOM = 1.5  # rows of the hash table for each node that may come
_FEWEST_ROWS, _MOST_ROWS = 2, 1 << 30
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class Settings:
    """How neighbours are sampled."""

    fanouts: tuple[int, ...]  # for each hop, from the seeds on; -1: all
    replace: bool = False
    directed: bool = True  # False: all edges between the nodes that were sampled
    weighted: bool = False
    layered: bool = False  # each hop starts from all nodes so far (DGL's blocks), not from the new ones only (PyG)

    @classmethod
    def checked(
        cls, num_neighbors: Any, *, replace: bool, directed: bool, weighted: bool, layered: bool, topology: Topology
    ) -> Settings:
        fanouts = _fanouts(num_neighbors)
        for name, flag in (("replace", replace), ("directed", directed), ("weighted", weighted)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, not {flag!r}")
        if weighted and topology.edge_weights is None:
            raise ValueError(
                "weighted=True needs a graph with weights\n  try   Graph.from_edges(..., edge_weights=...)"
            )
        if layered and not directed:
            raise ValueError('directed=False has no layers: it does not go with output="dgl"')
        return cls(fanouts, replace, directed, weighted, layered)


def _fanouts(num_neighbors: Any) -> tuple[int, ...]:
    if not isinstance(num_neighbors, Sequence | np.ndarray | torch.Tensor) or isinstance(num_neighbors, str | bytes):
        raise TypeError(f"num_neighbors must be a list with a number for each hop, not {num_neighbors!r}")
    fanouts = []
    for number in num_neighbors:
        try:
            fanout = operator.index(number)
        except TypeError:
            raise TypeError(f"num_neighbors must be whole numbers, not {number!r}") from None
        if isinstance(number, bool) or fanout < -1 or fanout > INT32_MAX:
            raise ValueError(
                f"num_neighbors has {number!r}: it must be from 0 to {INT32_MAX}, or -1 for all neighbours"
            )
        fanouts.append(fanout)
    return tuple(fanouts)


@dataclass(slots=True)
class Sampled:
    """A subgraph. Nodes are numbered in the order they were met, the seeds first."""

    n_id: torch.Tensor  # of each node in the graph
    edge_index: torch.Tensor  # (2, edges), sources and targets, as numbers within the batch
    e_id: torch.Tensor  # of each edge in the graph: the number it was given with
    num_sampled_nodes: list[int]  # new ones, of the seeds and of each hop
    num_sampled_edges: list[int] | None  # of each hop; None: the edges are not those of the hops


class HopSampler:
    """Samples batches from one topology, in several threads at once if need be. Pickled without what it keeps."""

    def __init__(self, topology: Topology, settings: Settings) -> None:
        self.topology = topology
        self.settings = settings
        self._spare: list[_Workspace] = []  # as many as there were threads at once; no lock, which a fork would keep

    def sample(self, seeds: Array, key: int) -> Sampled:
        """`seeds`: nodes of the graph, whole numbers in range; one that is there twice is sampled twice."""
        try:
            workspace = self._spare.pop()
        except IndexError:
            workspace = _Workspace(self.topology, self.settings)
        sampled = workspace.sample(seeds, key)
        self._spare.append(workspace)
        return sampled

    def __reduce__(self) -> tuple[Any, ...]:
        from holdfast.graph import ready

        return ready.restored, (self.topology, self.settings)


class _Workspace:
    """What is kept from one batch to the next: a hash table, and the nodes of the batch in hand."""

    def __init__(self, topology: Topology, settings: Settings) -> None:
        self.topology = topology
        self.settings = settings
        kind = topology.indices.dtype
        self._table = np.full(_FEWEST_ROWS, -1, np.int32)
        self._nodes = np.empty(0, kind)
        self._known = 0

    def sample(self, seeds: Array, key: int) -> Sampled:
        self._begin(seeds)
        first, counts = 0, [len(seeds)]
        hops: list[_Hop] = []
        last = len(self.settings.fanouts) - 1
        for number, fanout in enumerate(self.settings.fanouts):
            hop = self._count(first, fanout)
            hop.make_room(hops if number == last and self.settings.directed else None)
            self._pick(hop, mix(key, number))
            before = self._known
            self._relabel(hop)
            hops.append(hop)
            counts.append(self._known - before)
            first = 0 if self.settings.layered else before
        n_id = new_tensor(torch.int64, (self._known,))
        n_id.numpy()[:] = self._nodes[: self._known]
        if not self.settings.directed:
            return Sampled(n_id, *self._induced(), counts, None)
        laid_out = hops[-1] if hops else _Hop.empty()
        self._number(laid_out.e_id)
        return Sampled(n_id, laid_out.edge_index, laid_out.e_id, counts, [hop.num_edges for hop in hops])

    def _number(self, positions: torch.Tensor) -> None:
        """In place: the numbers that edges were given with, for their positions in the topology."""
        if self.topology.edge_ids is not None:
            kernels.give_numbers(self.topology.edge_ids, positions.numpy())

    # -- the steps of a hop ----------------------------------------------------------------------------------------

    def _begin(self, seeds: Array) -> None:
        self._known = 0
        self._table.fill(-1)
        self._reserve(len(seeds))  # also if there are more of them than nodes: one may be there twice
        self._nodes[: len(seeds)] = seeds
        self._known = len(seeds)
        kernels.enter(self._table, self._nodes[: self._known])

    def _count(self, first: int, fanout: int) -> _Hop:
        frontier = self._nodes[first : self._known]
        starts, degrees = np.empty(len(frontier), np.int64), np.empty(len(frontier), np.int64)
        offsets = np.empty(len(frontier) + 1, np.int64)
        topology, replace = self.topology, self.settings.replace
        if self.settings.weighted:
            picks = weighted.count_weighted(
                topology.indptr,
                topology.num_edges,
                frontier,
                fanout,
                replace,
                topology.edge_weights,
                starts,
                degrees,
                offsets,
            )
        else:
            picks = kernels.count(
                topology.indptr, topology.num_edges, frontier, fanout, replace, starts, degrees, offsets
            )
        if picks < 0:
            node = int(frontier[kernels.BAD_NODE - picks])
            ends = f"{int(topology.indptr[node])} to {int(topology.indptr[node + 1])}"
            raise IndexError(f"indptr says that the edges of node {node} are {ends}: there are {topology.num_edges}")
        return _Hop(first, fanout, starts, degrees, offsets, picks)

    def _pick(self, hop: _Hop, key: int) -> None:
        seed = np.uint64(key)
        most = int(hop.degrees.max(initial=0))
        if self.settings.weighted:
            scratch = np.empty(most, np.float64)
            where = hop.starts, hop.degrees, hop.offsets, hop.first, hop.fanout, self.settings.replace
            weighted.pick_weighted(*where, seed, self.topology.edge_weights, scratch, hop.positions, hop.targets)
            return
        marks = np.empty(_power_of_two(2 * min(max(hop.fanout, 0), most)), np.int64)
        where = hop.starts, hop.degrees, hop.offsets, hop.first, hop.fanout, self.settings.replace
        kernels.pick_uniform(*where, seed, marks, hop.positions, hop.targets)

    def _relabel(self, hop: _Hop) -> None:
        self._reserve(self._known + min(hop.num_edges, self.topology.num_nodes))
        topology = self.topology
        known = kernels.relabel(
            topology.indices, topology.num_nodes, hop.positions, self._table, self._nodes, self._known, hop.sources
        )
        if known < 0:
            place = -1 - known
            position, node = int(hop.positions[place]), int(self._nodes[hop.targets[place]])
            source = int(topology.indices[position])
            raise IndexError(
                f"an edge to node {node} comes from node {source}, which is out of range: there are "
                f"{topology.num_nodes} nodes (indices[{position}])"
            )
        self._known = known

    def _reserve(self, count: int) -> None:
        """Room for so many nodes in all."""
        if count > len(self._nodes):
            grown = np.empty(count, self._nodes.dtype)
            grown[: self._known] = self._nodes[: self._known]
            self._nodes = grown
        if count * _ROOM > _MOST_ROWS:
            raise MemoryError(
                f"a batch with up to {count} nodes is too large\n  try   a smaller batch_size, or fewer neighbours"
            )
        rows = _power_of_two(int(_ROOM * count) + 1)
        if rows > len(self._table):
            self._table = np.full(rows, -1, np.int32)
            kernels.enter(self._table, self._nodes[: self._known])

    def _induced(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All edges between the nodes of the batch: counted, then written."""
        nodes, topology = self._nodes[: self._known], self.topology
        where = topology.indptr, topology.indices, self._table, nodes
        count = among.edges_within(*where, _NOTHING, _NOTHING, _NOTHING)
        edge_index, e_id = new_tensor(torch.int64, (2, count)), new_tensor(torch.int64, (count,))
        ends = edge_index.numpy()
        among.edges_within(*where, e_id.numpy(), ends[0], ends[1])
        self._number(e_id)
        return edge_index, e_id


class _Hop:
    """The edges of one hop; in the arrays of the last hop lie those of the hops before it as well."""

    def __init__(  # noqa: PLR0917
        self, first: int, fanout: int, starts: Array, degrees: Array, offsets: Array, num_edges: int
    ) -> None:
        self.first, self.fanout = first, fanout
        self.starts, self.degrees, self.offsets = starts, degrees, offsets
        self.num_edges = num_edges

    @classmethod
    def empty(cls) -> _Hop:
        hop = cls(0, 0, _NOTHING, _NOTHING, np.zeros(1, np.int64), 0)
        hop.make_room(None)
        return hop

    def make_room(self, before: list[_Hop] | None) -> None:
        """`before`: this is the last one, to be laid out with these; None: another will be."""
        done = sum(hop.num_edges for hop in before or ())
        total = done + self.num_edges
        new = new_tensor if before is not None else _private
        self.edge_index, self.e_id = new(torch.int64, (2, total)), new(torch.int64, (total,))
        ends, positions = self.edge_index.numpy(), self.e_id.numpy()
        self.sources, self.targets, self.positions = ends[0, done:], ends[1, done:], positions[done:]
        done = 0
        for hop in before or ():
            here = slice(done, done + hop.num_edges)
            ends[0, here], ends[1, here], positions[here] = hop.sources, hop.targets, hop.positions
            done += hop.num_edges


def _private(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")


def _power_of_two(least: int) -> int:
    return 1 << max(0, least - 1).bit_length()
