"""`LinkNeighborLoader`: edges with negatives, and the neighbourhoods of their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphs import all_equal, edge_set, epochs, featured_graph, random_graph
from holdfast.graph import Graph, LinkNeighborLoader, NeighborBatch


def link_batches(graph: Graph, edges: Any = None, **options: Any) -> list[NeighborBatch]:
    torch.manual_seed(11)
    return epochs(LinkNeighborLoader(graph, [3, 2], edges, **{"batch_size": 64, **options}))


def ends_of(batch: NeighborBatch) -> list[tuple[int, int]]:
    sources, targets = batch.n_id[batch.edge_label_index].tolist()
    return list(zip(sources, targets, strict=True))


def test_all_edges_come_once_with_their_ends() -> None:
    """In the order of their numbers; every node is there once, and the ends are among the seeds."""
    graph = featured_graph()
    batches = link_batches(graph)
    known = edge_set(graph)
    assert [pair for batch in batches for pair in ends_of(batch)] == [known[k] for k in range(graph.num_edges)]
    assert torch.cat([batch.input_id for batch in batches]).tolist() == list(range(graph.num_edges))
    for batch in batches:
        assert len(batch.n_id.unique()) == len(batch.n_id)
        assert int(batch.edge_label_index.max()) < batch.batch_size
        assert torch.equal(batch.y, batch.n_id % 7)
        assert not hasattr(batch, "edge_label")


def test_edges_that_have_a_number_in_common_come_all() -> None:
    """The two directions of an undirected edge, say."""
    graph = Graph.from_csc([0, 2, 3, 4], [1, 2, 0, 0], edge_ids=[1, 0, 1, 0])
    (batch,) = link_batches(graph)
    assert ends_of(batch) == [(2, 0), (0, 2), (1, 0), (0, 1)]


@pytest.mark.parametrize("options", [{"neg_sampling_ratio": 1.5}, {"neg_sampling": "triplet", "neg_sampling_ratio": 2}])
def test_links_do_not_depend_on_the_workers(options: dict[str, Any]) -> None:
    graph = random_graph()
    alone = link_batches(graph, shuffle=True, **options)
    assert all_equal(link_batches(graph, shuffle=True, num_workers=2, **options), alone)


def test_binary_negatives_are_no_edges() -> None:
    """So many for each edge, labelled 0, none of them an edge of the graph or a loop."""
    graph = random_graph(300, 1000)
    edges, positive = set(edge_set(graph).values()), 0
    for batch in link_batches(graph, neg_sampling_ratio=1.5):
        pairs, labels = ends_of(batch), batch.edge_label.tolist()
        count = len(batch.input_id)
        assert labels == [1.0] * count + [0.0] * int(np.ceil(1.5 * count))
        assert set(pairs[:count]) <= edges
        assert not set(pairs[count:]) & edges
        assert all(source != target for source, target in pairs[count:])
        positive += count
    assert positive == 1000


def test_labels_make_room_for_that_of_the_negatives() -> None:
    """As in PyG: without negatives as given; with binary ones raised by one, if one of them is 0 already."""
    graph, edges = random_graph(), (np.array([1, 2, 3]), np.array([4, 5, 6]))
    (batch,) = link_batches(graph, edges, edge_label=torch.tensor([0, 3, 5]))
    assert batch.edge_label.tolist() == [0, 3, 5]
    assert ends_of(batch) == [(1, 4), (2, 5), (3, 6)]
    (batch,) = link_batches(graph, edges, edge_label=torch.tensor([0, 3, 5]), neg_sampling_ratio=1.0)
    assert batch.edge_label.tolist() == [1, 4, 6, 0, 0, 0]
    batches = link_batches(graph, edges, edge_label=torch.tensor([0, 3, 5]), neg_sampling_ratio=1.0, batch_size=1)
    assert [batch.edge_label.tolist() for batch in batches] == [[1, 0], [4, 0], [6, 0]]
    (batch,) = link_batches(graph, edges, edge_label=torch.ones(3), neg_sampling_ratio=1.0)
    assert batch.edge_label.tolist() == [1, 1, 1, 0, 0, 0]


def test_labels_may_have_several_columns() -> None:
    """Those of the negatives are rows of zeros."""
    edges, label = ([1, 2], [4, 5]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    (batch,) = link_batches(random_graph(), edges, edge_label=label, neg_sampling_ratio=1.0)
    assert batch.edge_label.tolist() == [*label.tolist(), [0, 0], [0, 0]]


def test_a_batch_without_links_is_empty() -> None:
    """A batch sampler may give one."""
    for kind, ratio in (("binary", 1.0), ("triplet", 1), ("triplet", 2)):
        options: dict[str, Any] = {"batch_size": 1, "neg_sampling": kind, "neg_sampling_ratio": ratio}
        (batch,) = link_batches(random_graph(), ([1], [2]), batch_sampler=[[]], **options)
        assert len(batch.n_id) == len(batch.input_id) == 0
    assert batch.dst_neg_index.shape == (0, 2)


def test_triplets_share_the_source() -> None:
    graph = random_graph(300, 1000)
    edges = set(edge_set(graph).values())
    for batch in link_batches(graph, neg_sampling="triplet", neg_sampling_ratio=2):
        sources, targets = batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]
        assert set(zip(sources.tolist(), targets.tolist(), strict=True)) <= edges
        others = batch.n_id[batch.dst_neg_index]
        assert others.shape == (len(sources), 2)
        for column in others.t():
            assert not set(zip(sources.tolist(), column.tolist(), strict=True)) & edges


def test_negatives_are_spread_over_all_nodes() -> None:
    """Of a graph with few edges, every node is an end of one sooner or later."""
    graph = Graph.from_edges(([0], [1]), num_nodes=20)
    loader = LinkNeighborLoader(graph, [1], ([0] * 100, [1] * 100), batch_size=100, neg_sampling_ratio=5.0)
    (batch,) = epochs(loader)
    assert set(batch.n_id[batch.edge_label_index[:, 100:]].flatten().tolist()) == set(range(20))


def test_a_link_that_fails_is_skipped_and_named() -> None:
    loader = LinkNeighborLoader(
        random_graph(),
        [2],
        ([1, 2, 3], [4, 5, 6]),
        batch_size=3,
        num_workers=1,
        on_error="skip",
        transform=not_the_first,
    )
    (batch,) = epochs(loader)
    assert ends_of(batch) == [(2, 5), (3, 6)]
    assert [sample.index for sample in loader.skipped_samples] == [0]


def not_the_first(batch: NeighborBatch) -> NeighborBatch:
    if 0 in batch.input_id:
        raise ValueError("not this one")
    return batch


REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "out of range": (IndexError, r"edge_label_index\[0\]\[0\] is 300", {"edge_label_index": ([300], [0])}),
    "shape": (ValueError, r"edge_label_index.T", {"edge_label_index": torch.zeros(5, 2, dtype=torch.long)}),
    "labels": (ValueError, "each of 3000 edges", {"edge_label": torch.zeros(3)}),
    "kind": (ValueError, "'binary' or 'triplet'", {"neg_sampling": "other"}),
    "negative ratio": (ValueError, "0 or more", {"neg_sampling_ratio": -1}),
    "broken triplets": (
        ValueError,
        "a whole neg_sampling_ratio",
        {"neg_sampling": "triplet", "neg_sampling_ratio": 1.5},
    ),
    "dgl": (ValueError, "links", {"output": "dgl"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused(case: str) -> None:
    error, says, options = REFUSED[case]
    with pytest.raises(error, match=says):
        LinkNeighborLoader(random_graph(), [2], **options)
