"""What is sampled: compared with a slow, plain sampler, and with what probability demands."""

from __future__ import annotations

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import edge_set, random_graph, slow_sample
from holdfast.graph import Graph
from holdfast.graph.sampling import HopSampler, Sampled, Settings

RARE = 1e-6
"""How unlikely it must be that draws with equal chances look as they do. The keys are fixed: it never changes."""


def sampled(graph: Graph, seeds: Any, fanouts: Any, key: int = 0, **options: Any) -> Sampled:
    return HopSampler(graph.topology, Settings(tuple(fanouts), **options)).sample(np.asarray(seeds, np.int64), key)


def edges_of(batch: Sampled) -> list[tuple[int, int, int]]:
    sources, targets = batch.edge_index.tolist()
    return list(zip(sources, targets, batch.e_id.tolist(), strict=True))


@st.composite
def graphs_and_seeds(draw: st.DrawFn) -> tuple[Graph, list[int]]:
    """Up to 30 nodes, any edges between them; sometimes a node with more than 64 of them."""
    num_nodes = draw(st.integers(1, 30))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=120))
    if draw(st.booleans()):
        hub = draw(node)
        edges += [(k % num_nodes, hub) for k in range(draw(st.integers(60, 140)))]
    pairs = np.array(edges, np.int64).reshape(-1, 2).T
    kind = draw(st.sampled_from([np.int32, np.int64, np.uint8, np.uint64]))
    graph = Graph.from_edges(pairs.astype(kind), num_nodes=num_nodes)
    return graph, draw(st.lists(node, min_size=0, max_size=8))


fanout_lists = st.lists(st.integers(-1, 5) | st.sampled_from([33, 50, 1000]), max_size=3)
keys = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(graphs_and_seeds(), fanout_lists, keys, st.booleans(), st.booleans())
def test_a_batch_is_that_of_a_slow_plain_sampler(
    graph_and_seeds: tuple[Graph, list[int]], fanouts: list[int], key: int, replace: bool, layered: bool
) -> None:
    """Nodes, edges and their order, for any graph, seeds that are there twice, and all ways of picking."""
    graph, seeds = graph_and_seeds
    fanouts = [min(fanout, 60) for fanout in fanouts] if replace else fanouts
    batch = sampled(graph, seeds, fanouts, key, replace=replace, layered=layered)
    nodes, edges = slow_sample(graph, seeds, fanouts, key, replace=replace, layered=layered)
    assert batch.n_id.tolist() == nodes
    assert edges_of(batch) == edges
    assert sum(batch.num_sampled_nodes) == len(nodes)
    assert batch.num_sampled_edges is not None
    assert sum(batch.num_sampled_edges) == len(edges)


@settings(deadline=None)
@given(graphs_and_seeds(), fanout_lists, keys, st.booleans())
def test_edges_exist_and_fanouts_hold(
    graph_and_seeds: tuple[Graph, list[int]], fanouts: list[int], key: int, weighted: bool
) -> None:
    """Every edge is one of the graph, none is there twice, and each node has as many as it may and can have."""
    graph, seeds = graph_and_seeds
    seeds = sorted(set(seeds))
    if weighted:
        edges = edge_set(graph)
        pairs = np.array([edges[k] for k in range(len(edges))], np.int64).reshape(-1, 2).T
        weights = np.arange(len(edges)) % 4  # a quarter of them cannot be taken
        graph = Graph.from_edges(pairs, num_nodes=graph.num_nodes, edge_weights=weights)
    batch = sampled(graph, seeds, fanouts, key, weighted=weighted)
    known, nodes = edge_set(graph), batch.n_id.tolist()
    assert len(set(nodes)) == len(nodes)
    assert nodes[: len(seeds)] == seeds
    assert len(set(batch.e_id.tolist())) == len(batch.e_id)
    for source, target, number in edges_of(batch):
        assert known[number] == (nodes[source], nodes[target])
        assert not weighted or number % 4
    _check_degrees(graph, batch, fanouts, weighted)


def _check_degrees(graph: Graph, batch: Sampled, fanouts: list[int], weighted: bool) -> None:
    taken = Counter(batch.edge_index[1].tolist())
    first = 0
    for fanout, count in zip(fanouts, batch.num_sampled_nodes, strict=False):
        for target in range(first, first + count):
            numbers = graph.in_edges(int(batch.n_id[target]))[1]
            possible = int((numbers % 4 > 0).sum()) if weighted else len(numbers)
            assert taken[target] == (possible if fanout < 0 else min(possible, fanout))
        first += count


@settings(deadline=None, max_examples=50)
@given(graphs_and_seeds(), st.lists(st.integers(0, 4), max_size=2), keys)
def test_undirected_batches_have_all_edges_between_their_nodes(
    graph_and_seeds: tuple[Graph, list[int]], fanouts: list[int], key: int
) -> None:
    """The nodes are those of a directed batch; every edge of the graph between two of them is there, once."""
    graph, seeds = graph_and_seeds
    seeds = sorted(set(seeds))
    batch = sampled(graph, seeds, fanouts, key, directed=False)
    nodes = batch.n_id.tolist()
    assert nodes == sampled(graph, seeds, fanouts, key).n_id.tolist()
    assert batch.num_sampled_edges is None
    expected = {number for number, (source, target) in edge_set(graph).items() if {source, target} <= set(nodes)}
    assert sorted(batch.e_id.tolist()) == sorted(expected)
    known = edge_set(graph)
    assert all(known[number] == (nodes[source], nodes[target]) for source, target, number in edges_of(batch))


def test_one_sampler_gives_the_same_whatever_it_gave_before() -> None:
    """What is kept between batches leaves no trace in them, however large the one before was."""
    graph = random_graph(2000, 40000)
    sampler = HopSampler(graph.topology, Settings((10, 10)))
    small = sampler.sample(np.array([3, 4]), 1)
    sampler.sample(np.arange(1500), 2)
    again = sampler.sample(np.array([3, 4]), 1)
    assert again.n_id.tolist() == small.n_id.tolist()
    assert edges_of(again) == edges_of(small)


def test_threads_do_not_disturb_each_other() -> None:
    """Kernels run without the GIL: what one thread works on is not another's."""
    graph = random_graph(2000, 40000)
    sampler = HopSampler(graph.topology, Settings((10, 10)))
    seeds = np.arange(200)
    expected = [edges_of(sampler.sample(seeds, key)) for key in range(20)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda key: edges_of(sampler.sample(seeds, key % 20)), range(200)))
    assert found == expected * 10


# -- chances -----------------------------------------------------------------------------------------------------------


def star(degree: int, weights: Any = None) -> Graph:
    """Edges from each of the other nodes to node 0."""
    return Graph.from_edges((np.arange(1, degree + 1), np.zeros(degree, int)), edge_weights=weights)


def frequencies(graph: Graph, fanout: int, rounds: int, **options: Any) -> Any:
    """How often each edge to node 0 was taken."""
    sampler = HopSampler(graph.topology, Settings((fanout,), **options))
    counts = np.zeros(graph.num_edges)
    for key in range(rounds):
        batch = sampler.sample(np.zeros(1, np.int64), key)
        np.add.at(counts, batch.e_id.numpy(), 1)
    return counts


@pytest.mark.parametrize(
    ("degree", "fanout", "replace"),
    [(20, 5, False), (100, 5, False), (100, 40, False), (20, 5, True), (100, 40, True)],
    ids=["one word", "linear search", "hash set", "replaced", "many replaced"],
)
def test_neighbours_have_equal_chances(degree: int, fanout: int, replace: bool) -> None:
    """By a chi-square test over many draws. Without replacement frequencies vary less, by the known factor."""
    rounds = 4000
    counts = frequencies(star(degree), fanout, rounds, replace=replace)
    expected = rounds * fanout / degree
    chi_square = ((counts - expected) ** 2 / expected).sum()
    if not replace:
        chi_square /= 1 - (fanout - 1) / (degree - 1)
    assert scipy.stats.chi2.isf(1 - RARE, degree - 1) < chi_square < scipy.stats.chi2.isf(RARE, degree - 1)


def test_pairs_of_neighbours_have_equal_chances() -> None:
    """Not only each neighbour: every subset of two is as likely as any other."""
    sampler = HopSampler(star(6).topology, Settings((2,)))
    pairs: Counter[tuple[int, ...]] = Counter()
    for key in range(6000):
        pairs[tuple(sorted(sampler.sample(np.zeros(1, np.int64), key).e_id.tolist()))] += 1
    assert len(pairs) == 15
    assert scipy.stats.chisquare(list(pairs.values())).pvalue > RARE


@pytest.mark.parametrize("replace", [False, True])
def test_single_draws_follow_the_weights(replace: bool) -> None:
    """One neighbour is taken in proportion to its weight, and never one of weight zero."""
    weights = np.array([0, 1, 2, 3, 4, 0, 10, 0.5])
    counts = frequencies(star(8, weights), 1, 8000, weighted=True, replace=replace)
    assert counts[weights == 0].sum() == 0
    positive = weights > 0
    expected = weights[positive] / weights.sum() * 8000
    assert scipy.stats.chisquare(counts[positive], expected).pvalue > RARE


def test_weighted_draws_without_replacement_are_draws_among_the_rest() -> None:
    """How often each pair comes is what drawing twice, the second time among what is left, gives."""
    weights = np.array([1.0, 2.0, 3.0, 6.0])
    sampler = HopSampler(star(4, weights).topology, Settings((2,), weighted=True))
    counts: Counter[tuple[int, ...]] = Counter()
    rounds = 12000
    for key in range(rounds):
        counts[tuple(sorted(sampler.sample(np.zeros(1, np.int64), key).e_id.tolist()))] += 1
    shares = weights / weights.sum()
    expected = {
        (a, b): rounds * (shares[a] * shares[b] / (1 - shares[a]) + shares[b] * shares[a] / (1 - shares[b]))
        for a, b in itertools.combinations(range(4), 2)
    }
    observed = [counts[pair] for pair in expected]
    assert scipy.stats.chisquare(observed, list(expected.values())).pvalue > RARE


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("replace", [False, True])
def test_weights_of_any_size_count(kind: Any, replace: bool) -> None:
    """Neither huge nor tiny ones overflow: what counts is how they compare."""
    tiny, huge = np.finfo(kind).tiny, np.finfo(kind).max
    for scale in (tiny * 8, huge / 8):
        weights = (np.array([1, 2, 0, 5]) * scale).astype(kind)
        counts = frequencies(star(4, weights), 1, 4000, weighted=True, replace=replace)
        assert counts[2] == 0
        expected = np.array([1, 2, 5]) / 8 * 4000
        assert scipy.stats.chisquare(counts[[0, 1, 3]], expected).pvalue > RARE
