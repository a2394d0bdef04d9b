"""A model that is trained from it learns what there is to learn, while a worker dies on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from helpers import worker_pids
from holdfast.graph import Graph, NeighborBatch, NeighborLoader

NODES, CLASSES, WIDTH = 1200, 3, 8


def communities(seed: int = 0) -> tuple[Graph, torch.Tensor]:
    """Nodes of three kinds, nine edges in ten between nodes of one kind; features say nearly nothing of the kind.

    So a node's kind can be told from its neighbours' features together, and hardly from its own.
    """
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, CLASSES, NODES)
    members = [np.flatnonzero(kind == k) for k in range(CLASSES)]
    targets = np.repeat(np.arange(NODES), 20)
    same = rng.random(len(targets)) < 0.9
    alike = np.array([rng.choice(members[kind[target]]) for target in targets])
    sources = np.where(same, alike, rng.integers(0, NODES, len(targets)))
    x = rng.normal(size=(NODES, WIDTH)) + 0.6 * np.eye(CLASSES, WIDTH)[kind]
    y = torch.from_numpy(kind)
    features = {"x": torch.from_numpy(x).float(), "y": y}
    return Graph.from_edges((sources, targets), num_nodes=NODES, node_features=features), y


class SageLayer(nn.Module):
    """GraphSAGE: of itself, and of the mean of those with an edge to it."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(width_in, width_out), nn.Linear(width_in, width_out)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        sources, targets = edge_index
        total = torch.zeros_like(x).index_add_(0, targets, x[sources])
        count = torch.zeros(len(x)).index_add_(0, targets, torch.ones(len(targets))).clamp(min=1)
        result: torch.Tensor = self.own(x) + self.others(total / count[:, None])
        return result


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SageLayer(WIDTH, 16), SageLayer(16, CLASSES)

    def forward(self, batch: NeighborBatch) -> torch.Tensor:
        hidden = self.first(batch.x, batch.edge_index).relu()
        result: torch.Tensor = self.second(hidden, batch.edge_index)[: batch.batch_size]
        return result


@pytest.fixture
def one_thread() -> Iterator[None]:
    """On a machine that is busy, threads of torch's that wait for each other take a hundred times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_graphsage_learns_while_a_worker_is_killed() -> None:
    """Two workers, one killed in each epoch: nodes it has not seen are told right, far better than by themselves."""
    torch.manual_seed(0)
    graph, y = communities()
    is_seen = torch.arange(NODES) % 3 > 0
    model = Sage()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with NeighborLoader(
        graph, [10, 5], is_seen, batch_size=100, shuffle=True, num_workers=2, max_restarts=50
    ) as loader:
        for _ in range(5):
            iterator = iter(loader)
            seeds = []
            for number, batch in enumerate(iterator):
                if number == 2:
                    os.kill(worker_pids(iterator)[1], signal.SIGKILL)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch), batch.y[: batch.batch_size]).backward()
                optimizer.step()
                seeds += batch.n_id[: batch.batch_size].tolist()
            assert sorted(seeds) == is_seen.nonzero().flatten().tolist()
        assert loader.stats().restarts >= 5
    model.eval()
    with torch.no_grad(), NeighborLoader(graph, [-1, -1], ~is_seen, batch_size=400) as unseen:
        (batch,) = unseen
        accuracy = (model(batch).argmax(1) == y[~is_seen]).float().mean()
    assert accuracy > 0.93, accuracy
