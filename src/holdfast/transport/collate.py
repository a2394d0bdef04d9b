"""Default collation that builds its result in the slot: the one copy a batch needs.

torch's `default_collate` looks up what to do with tensors in a table. In a worker that entry is replaced by `stack`,
so that `default_collate`, and every custom collate function that calls it, writes straight into the slot.
What the user put into the table stays there. Datasets of ours build their batches there too, by `new_tensor`.
Runs in: worker process.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.data._utils import collate as torch_collate

from holdfast.transport.writer import SlotWriter

_writers: list[SlotWriter] = []  # of this process: one, in a worker


def install(writer: SlotWriter) -> None:
    """Make `default_collate` in this process build tensors in the slot of the unit in hand."""
    _writers[:] = [writer]
    table = torch_collate.default_collate_fn_map
    if table.get(Tensor) is not torch_collate.collate_tensor_fn:
        return

    def stack(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
        first: Tensor = batch[0]
        if type(first) is not Tensor or not first.is_cpu or first.is_nested or first.layout is not torch.strided:
            return _stack_elsewhere(batch, collate_fn_map)
        nbytes = len(batch) * first.numel() * first.element_size()
        if nbytes == 0 or first.is_quantized or not writer.accepts_tensors:
            return _stack_elsewhere(batch, collate_fn_map)
        out = writer.tensor(first.dtype, (len(batch), *first.shape), nbytes)
        return torch.stack(batch, 0, out=out)

    table[Tensor] = stack


def new_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """A tensor to be filled: in the slot of the unit in hand, if there is one and it can be used.

    For whoever makes a batch and does not keep it. What is kept all the same is noticed (`SlotWriter.is_kept`).
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0 or not _writers or not _writers[0].can_build:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return _writers[0].tensor(dtype, shape, nbytes)


def _stack_elsewhere(batch: Any, collate_fn_map: Any) -> Tensor:
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        # torch's own function refuses these, in its own words, before it touches memory
        torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    if any(sample.requires_grad for sample in batch):
        # As in torch's workers, where there is always an `out=`: this is refused, in torch's words.
        out = torch.empty((len(batch), *first.shape), dtype=first.dtype, device=first.device)
        return torch.stack(batch, 0, out=out)
    return torch.stack(batch, 0)
