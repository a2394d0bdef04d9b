"""DGL's mini-batches: (input nodes, output nodes, blocks).

With DGL itself where it can be imported (`PYTHONPATH=.venv-dgl`, after `make bench`); elsewhere with what
`outputs.as_dgl` asks of it, which keeps what it is given.
"""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphs import edge_set, featured_graph, seeded_epochs, slow_sample
from holdfast.graph import NeighborLoader
from holdfast.graph.dataset import Neighborhoods


class Block:
    """What is asked of a block of DGL's."""

    def __init__(self, ends: tuple[torch.Tensor, torch.Tensor], num_src_nodes: int, num_dst_nodes: int) -> None:
        self._ends = ends
        self._counts = num_src_nodes, num_dst_nodes
        self.srcdata: dict[str, torch.Tensor] = {}
        self.dstdata: dict[str, torch.Tensor] = {}
        self.edata: dict[str, torch.Tensor] = {}

    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._ends

    def num_src_nodes(self) -> int:
        return self._counts[0]

    def num_dst_nodes(self) -> int:
        return self._counts[1]


def _dgl() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl
    except Exception:
        return SimpleNamespace(create_block=Block, NID="_ID", EID="_ID")
    return dgl


DGL = _dgl()


@pytest.fixture(autouse=True)
def dgl_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", DGL)


@pytest.mark.parametrize("workers", [0, 2])
def test_blocks_are_those_of_dgls_sampler(workers: int) -> None:
    """The farthest first; sources of a block are targets of the one before it, targets first; edges of the graph."""
    graph = featured_graph()
    known = edge_set(graph)
    for inputs, outputs, blocks in seeded_epochs(graph, num_workers=workers, output="dgl"):
        assert len(blocks) == 2
        assert torch.equal(blocks[0].srcdata[DGL.NID], inputs)
        assert torch.equal(blocks[-1].dstdata[DGL.NID], outputs)
        assert torch.equal(blocks[0].dstdata[DGL.NID], blocks[1].srcdata[DGL.NID])
        assert torch.equal(blocks[0].srcdata["y"], inputs % 7)
        assert torch.equal(blocks[-1].dstdata["y"], outputs % 7)
        for block, fanout in zip(blocks, (3, 4), strict=True):
            sources, targets = block.edges()
            nodes = block.srcdata[DGL.NID]
            ids = block.edata[DGL.EID].tolist()
            ends = zip(nodes[sources].tolist(), nodes[targets].tolist(), strict=True)
            assert [known[number] for number in ids] == list(ends)
            assert block.edata["edge_attr"].tolist() == ids
            assert int(block.num_dst_nodes()) <= int(block.num_src_nodes()) == len(nodes)
            counts = torch.bincount(targets, minlength=int(block.num_dst_nodes()))
            degrees = graph.in_degrees(nodes[: int(block.num_dst_nodes())])
            assert counts.tolist() == [min(int(degree), fanout) for degree in degrees]


def test_blocks_have_the_edges_of_a_slow_sampler() -> None:
    """Each hop starts from all nodes so far: the seeds draw again in the second."""
    graph = featured_graph()
    dataset = NeighborLoader(graph, [4, 3], output="dgl").dataset
    assert isinstance(dataset, Neighborhoods)
    batch = dataset.batch_of(np.array([5, 6, 7]), 99)
    nodes, edges = slow_sample(graph, [5, 6, 7], [4, 3], 99, layered=True)
    assert batch.n_id.tolist() == nodes
    assert batch.e_id.tolist() == [number for _, _, number in edges]
