"""Batches as other libraries have them: PyG's `Data`, DGL's blocks.

A worker sends plain tensors. What is made of them is made when they are unpickled, in the main process: so workers need
not import those libraries, and nothing of theirs has to be pickled. Where the user's own code runs in the worker on
what is made (`transform`, `collate_fn`), it is made there.

Runs in: main process; worker process, for the user's own code there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import get_worker_info

from holdfast.graph.batches import NeighborBatch

OUTPUTS = ("tensors", "pyg", "dgl")


def check_output(output: str) -> None:
    """Raise unless batches can be made so, here and now."""
    if output not in OUTPUTS:
        raise ValueError(f"output must be one of {', '.join(map(repr, OUTPUTS))}, not {output!r}")
    needs = {"pyg": ("torch_geometric", "torch_geometric"), "dgl": ("dgl", "dgl==1.1.3 --no-deps")}.get(output)
    if needs is None:
        return
    try:
        __import__(needs[0])
    except Exception as error:  # DGL raises what it likes if it does not go with this torch
        raise ImportError(
            f"output={output!r} needs {needs[0]}, which cannot be imported: {error}\n"
            f'  try   pip install {needs[1]}   or   output="tensors"'
        ) from error


def as_tensors(batch: NeighborBatch) -> NeighborBatch:
    return batch


def as_pyg(batch: NeighborBatch) -> Any:
    """PyG's mini-batch: `Data` with n_id, e_id, batch_size and the features by name."""
    from torch_geometric.data import Data

    return Data(
        edge_index=batch.edge_index,
        n_id=batch.n_id,
        e_id=batch.e_id,
        num_nodes=batch.num_nodes,
        batch_size=batch.batch_size,
        num_sampled_nodes=batch.num_sampled_nodes,
        num_sampled_edges=batch.num_sampled_edges,
        **batch.extras,
    )


def as_dgl(batch: NeighborBatch) -> Any:
    """DGL's mini-batch: input nodes, output nodes, and a block for each hop, the farthest first."""
    import dgl

    assert batch.num_sampled_edges is not None
    blocks: list[Any] = []
    reached, done = batch.batch_size, 0
    for new, count in zip(batch.num_sampled_nodes[1:], batch.num_sampled_edges, strict=True):
        sources, targets = batch.edge_index[:, done : done + count]
        block = dgl.create_block((sources, targets), num_src_nodes=reached + new, num_dst_nodes=reached)
        block.srcdata[dgl.NID], block.dstdata[dgl.NID] = batch.n_id[: reached + new], batch.n_id[:reached]
        block.edata[dgl.EID] = batch.e_id[done : done + count]
        for name, values in batch.edge_features.items():
            block.edata[name] = values[done : done + count]
        blocks.insert(0, block)
        reached, done = reached + new, done + count
    for name, values in batch.node_features.items():
        if blocks:
            blocks[0].srcdata[name] = values
            blocks[-1].dstdata[name] = values[: batch.batch_size]
    return batch.n_id, batch.n_id[: batch.batch_size], blocks


MAKERS: dict[str, Callable[[NeighborBatch], Any]] = {"tensors": as_tensors, "pyg": as_pyg, "dgl": as_dgl}


@dataclass(frozen=True)
class Delivery:
    """What a batch becomes."""

    output: str = "tensors"
    transform: Callable[[Any], Any] | None = None
    is_made_here: bool = False  # where it was sampled: the user's collate function wants it

    def of(self, batch: NeighborBatch) -> Any:
        """What is delivered, or is on its way to be made into it."""
        if self.transform is not None:
            return self.transform(make(batch, self.output))
        if self.output == "tensors" or self.is_made_here or get_worker_info() is None:
            return make(batch, self.output)
        return Made(batch, self.output)


class Made:
    """A batch on its way: unpickled, it is what was asked for."""

    def __init__(self, batch: NeighborBatch, output: str) -> None:
        self._batch = batch
        self._output = output

    def __reduce__(self) -> tuple[Any, ...]:
        return make, (self._batch, self._output)


def make(batch: NeighborBatch, output: str) -> Any:
    return MAKERS[output](batch)
