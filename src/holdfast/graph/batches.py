"""What a batch is, in plain tensors: `NeighborBatch`. Other libraries' batches are made of it (`outputs.py`).

Runs in: worker process (made), main process (used).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import torch

Tensors = dict[str, torch.Tensor]


@dataclasses.dataclass(eq=False)
class NeighborBatch:
    """A sampled subgraph. Features, and what else belongs to it, are attributes: `batch.x`, `batch.edge_label`.

    The first `batch_size` nodes are the seeds. Sources and targets in `edge_index` are numbers within the batch, which
    `n_id` has the graph's nodes of; messages flow from `edge_index[0]` to `edge_index[1]`.
    """

    n_id: torch.Tensor
    edge_index: torch.Tensor
    e_id: torch.Tensor
    batch_size: int
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int] | None
    node_features: Tensors = dataclasses.field(default_factory=dict)
    edge_features: Tensors = dataclasses.field(default_factory=dict)
    labels: dict[str, Any] = dataclasses.field(default_factory=dict)  # of links: edge_label_index and so on

    @property
    def num_nodes(self) -> int:
        return len(self.n_id)

    @property
    def num_edges(self) -> int:
        return len(self.e_id)

    @property
    def extras(self) -> dict[str, Any]:
        """Features and labels, by name."""
        return {**self.node_features, **self.edge_features, **self.labels}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for group in ("node_features", "edge_features", "labels"):
                values = self.__dict__.get(group, {})
                if name in values:
                    return values[name]
        raise AttributeError(f"this batch has no {name!r}")

    def to(self, device: Any, *, non_blocking: bool = False) -> NeighborBatch:
        """The same on another device."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> NeighborBatch:
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        def changed(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return change(value)
            return {name: changed(one) for name, one in value.items()} if isinstance(value, dict) else value

        return dataclasses.replace(self, **{f.name: changed(getattr(self, f.name)) for f in dataclasses.fields(self)})

    def __repr__(self) -> str:
        named = "".join(f", {name}={_form(value)}" for name, value in self.extras.items())
        return f"NeighborBatch(batch_size={self.batch_size}, nodes={self.num_nodes}, edges={self.num_edges}{named})"


def _form(value: Any) -> str:
    return str(list(value.shape)) if isinstance(value, torch.Tensor) else repr(value)
