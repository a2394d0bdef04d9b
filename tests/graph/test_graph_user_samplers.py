"""Samplers of the user's own: a known report of workers that exit with one, and the recipe of docs/graph.md.

The report has three programs: a dataset that holds a DGL graph; one that is given it pickled; one that tries to share
its topology. The first two run here as they are, but for a collate function, which torch's own is not for graphs. The
third is rewritten with `holdfast.share`. DGL is used where it can be imported (`PYTHONPATH=.venv-dgl`, after
`make bench`); elsewhere a small class that has what they ask of it.
"""

from __future__ import annotations

import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse
import torch
from torch.utils.data import Dataset

import holdfast
from graphs import METHODS, epochs, how
from holdfast import DataLoader

DOCS = Path(__file__).parents[2] / "docs"


class ToyGraph:
    """What the report asks of a DGL graph."""

    def __init__(self, edges: tuple[torch.Tensor, torch.Tensor], num_nodes: int) -> None:
        self.sources, self.targets = edges
        self._num_nodes = num_nodes

    def num_nodes(self) -> int:
        return self._num_nodes

    def in_edges(self, node: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        there = self.targets == node
        return self.sources[there], self.targets[there]

    def subgraph(self, nodes: torch.Tensor) -> ToyGraph:
        kept = nodes.unique().tolist()
        numbers = {node: number for number, node in enumerate(kept)}
        pairs = zip(self.sources.tolist(), self.targets.tolist(), strict=True)
        edges = [(numbers[u], numbers[v]) for u, v in pairs if u in numbers and v in numbers]
        sources, targets = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
        return ToyGraph((sources, targets), len(kept))

    def num_edges(self) -> int:
        return len(self.sources)


def _dgl() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl
    except Exception:
        return None
    return dgl


DGL = _dgl()  # now: the library opens files that stay open, which no test is to be blamed for


def make_graph() -> Any:
    edges = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 2, 3])
    return ToyGraph(edges, 4) if DGL is None else DGL.graph(edges)


class CustomNeighborSampler(Dataset[Any]):
    """Of the first program."""

    def __init__(self, g: Any, num_nodes: int) -> None:
        self.g = g
        self.nodes = torch.arange(num_nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, idx: int) -> tuple[Any, torch.Tensor]:
        seed_node = self.nodes[idx]
        neighbors = self.g.in_edges(seed_node)[0]
        return self.g.subgraph(torch.cat([seed_node.unsqueeze(0), neighbors])), seed_node


class PickledNeighborSampler(CustomNeighborSampler):
    """Of the second: given the graph as bytes."""

    def __init__(self, graph_data: bytes, num_nodes: int) -> None:
        super().__init__(pickle.loads(graph_data), num_nodes)


class SharedNeighborSampler(Dataset[Any]):
    """Of the third, as it was meant: the topology is shared, and each worker reads it where it lies."""

    def __init__(self, adjacency: Any) -> None:
        self.adjacency = holdfast.share(adjacency)

    def __len__(self) -> int:
        return int(self.adjacency.shape[0])

    def __getitem__(self, idx: int) -> tuple[Any, torch.Tensor]:
        start, end = self.adjacency.indptr[idx : idx + 2]
        kept = sorted({idx, *self.adjacency.indices[start:end].tolist()})
        within = self.adjacency[kept][:, kept].tocoo()
        edges = torch.tensor(within.row, dtype=torch.int64), torch.tensor(within.col, dtype=torch.int64)
        return ToyGraph(edges, len(kept)), torch.tensor(idx)


def collate_graphs(samples: list[tuple[Any, torch.Tensor]]) -> tuple[list[Any], torch.Tensor]:
    return [graph for graph, _ in samples], torch.stack([seed for _, seed in samples])


def _init_fn(g: Any) -> None:
    """As in the report: it is called in the main process, and what the loader gets is None."""


def run(dataset: Dataset[Any], method: str, **options: Any) -> list[tuple[int, int, int]]:
    """Seed, nodes and edges of each subgraph."""
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=2, num_workers=4, collate_fn=collate_graphs, **how(method), **options
    )
    return [
        (int(seed), int(graph.num_nodes()), int(graph.num_edges()))
        for graphs, seeds in epochs(loader)
        for graph, seed in zip(graphs, seeds, strict=True)
    ]


EXPECTED = [(0, 1, 0), (1, 2, 1), (2, 3, 3), (3, 2, 1)]


@pytest.mark.parametrize("method", METHODS)
def test_a_sampler_that_holds_a_graph(method: str) -> None:
    graph = make_graph()
    assert run(CustomNeighborSampler(graph, graph.num_nodes()), method) == EXPECTED


@pytest.mark.parametrize("method", METHODS)
def test_a_sampler_that_is_given_the_graph_pickled(method: str) -> None:
    graph = make_graph()
    dataset = PickledNeighborSampler(pickle.dumps(graph), graph.num_nodes())
    assert run(dataset, method, worker_init_fn=_init_fn(graph)) == EXPECTED  # type: ignore[func-returns-value]


@pytest.mark.parametrize("method", METHODS)
def test_a_sampler_over_a_shared_adjacency_matrix(method: str) -> None:
    """With columns as targets, so that a column has the sources of the edges to a node."""
    adjacency = scipy.sparse.csc_array(([1.0] * 4, ([0, 0, 1, 2], [1, 2, 2, 3])), shape=(4, 4))
    assert run(SharedNeighborSampler(adjacency), method) == EXPECTED


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program of docs/graph.md, as a module."""
    text = (DOCS / "graph.md").read_text().split("## Your own sampler")[1]
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "recipe_of_the_docs.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    import recipe_of_the_docs  # type: ignore[import-not-found]

    yield recipe_of_the_docs
    del sys.modules["recipe_of_the_docs"]


@pytest.mark.parametrize("method", METHODS)
def test_the_recipe_of_the_docs_runs(method: str, recipe: Any) -> None:
    batches = epochs(recipe.make_loader(num_workers=2, on_error="skip", **how(method)))
    assert [batch["seeds"].tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert [batch["neighbors"].tolist() for batch in batches] == [[0], [0, 1, 2]]
    assert [batch["batch"].tolist() for batch in batches] == [[1], [0, 0, 1]]
    assert batches[1]["x"].argmax(1).tolist() == [0, 1, 2]
