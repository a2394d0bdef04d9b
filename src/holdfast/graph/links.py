"""`LinkNeighborLoader`: batches of edges, with negatives, and the neighbourhoods of their ends.

    edges to learn from ──► their ends, and nodes drawn for negatives ──► unique nodes ──► sampled as any seeds

Runs in: main process (LinkNeighborLoader), worker process (LinkNeighborhoods).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from holdfast.graph import among
from holdfast.graph.arrays import Array, as_features, as_ids, check_range
from holdfast.graph.batches import NeighborBatch
from holdfast.graph.builders.edges import read_pair
from holdfast.graph.dataset import Neighborhoods
from holdfast.graph.graph import Graph
from holdfast.graph.loader import BatchwiseLoader, Output, complete, seeds_from, settings_of
from holdfast.graph.outputs import Delivery
from holdfast.graph.sampling import Settings
from holdfast.graph.warming import compile_for, small_like
from holdfast.sharing.share import share
from holdfast.workers.rng import mix

_TRIES = 16  # for a pair without an edge; where nearly all pairs have one, it may have one too
_NEGATIVES, _NEIGHBORS = 0, 1  # what a key is for
_NO_SOURCES = np.empty(0, np.int64)


@dataclass(frozen=True)
class Negatives:
    """How many pairs without an edge there are for each edge, and what they share with it."""

    ratio: float = 0.0
    kind: str = "binary"  # any pairs, beside the edges; "triplet": other targets for each edge's source

    @classmethod
    def checked(cls, ratio: Any, kind: str) -> Negatives:
        if kind not in ("binary", "triplet"):
            raise ValueError(f"neg_sampling must be 'binary' or 'triplet', not {kind!r}")
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio < math.inf:
            raise ValueError(f"neg_sampling_ratio must be a number, 0 or more, not {ratio!r}")
        if kind == "triplet" and (ratio < 1 or ratio != int(ratio)):
            raise ValueError(f"neg_sampling='triplet' needs a whole neg_sampling_ratio of 1 or more, not {ratio!r}")
        return cls(float(ratio), kind)

    @property
    def have_label_0(self) -> bool:
        return self.kind == "binary" and self.ratio > 0


class LinkNeighborhoods(Neighborhoods):
    """An index is the number of an edge to learn from, or a list of them."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        delivery: Delivery,
        edges: tuple[Array, Array, torch.Tensor | None],
        negatives: Negatives,
    ) -> None:
        super().__init__(graph, settings, delivery)
        self.edges = edges  # sources, targets, labels: shared
        self.negatives = negatives

    def __len__(self) -> int:
        return len(self.edges[0])

    def batch_of(self, nodes: Array, key: int) -> NeighborBatch:
        sources, targets = self.edges[0][nodes].astype(np.int64), self.edges[1][nodes].astype(np.int64)
        drawn = self._draw(sources, mix(key, _NEGATIVES))
        ends = np.concatenate([sources, targets, *drawn])
        seeds, numbers = np.unique(ends, return_inverse=True)
        batch = self._with_features(self.sampler.sample(seeds, mix(key, _NEIGHBORS)), len(seeds))
        label = self._labels(nodes)
        batch.labels = {"input_id": torch.from_numpy(np.array(nodes, np.int64)), **self._named(numbers, drawn, label)}
        return batch

    def _draw(self, sources: Array, key: int) -> tuple[Array, Array]:
        """The ends of the negatives."""
        count = math.ceil(self.negatives.ratio * len(sources))
        starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        is_triplet = self.negatives.kind == "triplet"
        given = np.tile(sources, int(self.negatives.ratio)) if is_triplet else _NO_SOURCES
        topology = self.graph.topology
        among.draw_apart(topology.indptr, topology.indices, np.uint64(key), _TRIES, given, starts, ends)
        return (ends[:0], ends) if is_triplet else (starts, ends)

    def _labels(self, numbers: Array) -> torch.Tensor | None:
        labels = self.edges[2]
        return None if labels is None else labels[torch.from_numpy(np.array(numbers, np.int64))]

    def _named(self, numbers: Array, drawn: tuple[Array, Array], label: torch.Tensor | None) -> dict[str, Any]:
        """As PyG names them, as numbers within the batch."""
        within = torch.from_numpy(np.ascontiguousarray(numbers.reshape(-1), np.int64))
        negatives = len(drawn[1])
        count = (len(within) - len(drawn[0]) - negatives) // 2
        sources, targets, rest = within[:count], within[count : 2 * count], within[2 * count :]
        if self.negatives.kind == "triplet":
            ratio = int(self.negatives.ratio)
            others = rest if ratio == 1 else rest.view(ratio, count).t()
            named = {"src_index": sources, "dst_pos_index": targets, "dst_neg_index": others}
            return named if label is None else {**named, "edge_label": label}
        index = torch.stack([torch.cat([sources, rest[:negatives]]), torch.cat([targets, rest[negatives:]])])
        if not negatives:
            return {"edge_label_index": index} if label is None else {"edge_label_index": index, "edge_label": label}
        positive = torch.ones(count, device="cpu") if label is None else label
        zeros = positive.new_zeros((negatives, *positive.shape[1:]))
        return {"edge_label_index": index, "edge_label": torch.cat([positive, zeros])}


class LinkNeighborLoader(BatchwiseLoader):
    """Batches of edges with sampled neighbourhoods of their ends, from one graph that all workers share.

    Args:
        edge_label_index: the edges to learn from, as `Graph.from_edges` takes them; None: all edges of the graph.
        edge_label: a label for each of them. Binary negatives have the label 0: if any of these is 0 too, all are
            raised by 1, as PyG does.
        neg_sampling_ratio: how many negatives there are for each edge. They are drawn among all pairs of nodes, those
            that are edges of the graph left out.
        neg_sampling: "binary": batches have `edge_label_index` and `edge_label`, edges first, then negatives.
            "triplet": `src_index`, `dst_pos_index` and `dst_neg_index`: the negatives of an edge have its source.

    A sample is an edge, its index the number of the edge in `edge_label_index`; a batch has these as `input_id`. All
    other arguments are those of `NeighborLoader`, but `input_nodes`; batches are `NeighborBatch` or PyG's `Data`.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Any,
        edge_label_index: Any = None,
        *,
        edge_label: Any = None,
        neg_sampling_ratio: float = 0.0,
        neg_sampling: Literal["binary", "triplet"] = "binary",
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        drop_last: bool = False,
        replace: bool = False,
        directed: bool = True,
        weighted: bool = False,
        output: Output = "tensors",
        transform: Callable[[Any], Any] | None = None,
        generator: torch.Generator | None = None,
        rng: Literal["worker", "sample"] = "sample",
        **arguments: Any,
    ) -> None:
        if output == "dgl":
            raise ValueError('batches of links are given as "tensors" or "pyg"')
        settings = settings_of(
            graph, num_neighbors, replace=replace, directed=directed, weighted=weighted, output=output
        )
        self.graph, self.num_neighbors = graph, list(settings.fanouts)
        self.neg_sampling_ratio, self.neg_sampling = neg_sampling_ratio, neg_sampling
        self.replace, self.directed, self.weighted = replace, directed, weighted
        self.output, self.transform = output, transform
        negatives = Negatives.checked(neg_sampling_ratio, neg_sampling)
        edges = share(_edges(graph, edge_label_index, edge_label, negatives))
        delivery = Delivery(output, transform, is_made_here=arguments.get("collate_fn") is not None)
        dataset = LinkNeighborhoods(graph, settings, delivery, edges, negatives)
        _compile_for(dataset)
        complete(arguments)
        super().__init__(
            dataset,
            **seeds_from(range(len(dataset)), batch_size, shuffle, sampler, batch_sampler, drop_last, generator),
            generator=generator,
            rng=rng,
            **arguments,
        )


def _edges(
    graph: Graph, edge_label_index: Any, edge_label: Any, negatives: Negatives
) -> tuple[Array, Array, torch.Tensor | None]:
    if edge_label_index is None:
        sources, targets = _all_edges(graph)
    else:
        sources, targets = read_pair("edge_label_index", edge_label_index)
    check_range("edge_label_index[0]", sources, graph.num_nodes)
    check_range("edge_label_index[1]", targets, graph.num_nodes)
    label = None if edge_label is None else as_features("edge_label", edge_label, len(sources), "edges")
    if label is not None and negatives.have_label_0 and label.numel() and label.min() == 0:
        label = label + 1
    return as_ids("sources", sources), as_ids("targets", targets), label


def _all_edges(graph: Graph) -> tuple[Array, Array]:
    """In the order of their numbers, which some may have in common: the two directions of an undirected one, say."""
    topology = graph.topology
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(topology.indptr))
    if topology.edge_ids is None:
        return np.array(topology.indices), targets
    order = np.argsort(topology.edge_ids, kind="stable")
    return np.asarray(topology.indices)[order], targets[order]


def _compile_for(dataset: LinkNeighborhoods) -> None:
    """As for nodes; and what draws negatives."""
    compile_for(dataset.sampler)
    small = small_like(dataset.graph.topology)
    two = np.empty(2, np.int64), np.empty(2, np.int64)
    among.draw_apart(small.indptr, small.indices, np.uint64(0), 1, _NO_SOURCES, *two)
