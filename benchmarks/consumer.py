"""The training loop's stand-in: reads a little of every page of a batch, at a price equal for all loaders.

Without it a loader that never maps its batch into the main process would look free.
Runs in: main.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

PAGE_BYTES = 4096
SMALL = 8192
"""Tensors of up to this many elements are summed whole: one call, and cheaper than a view."""


def touch(batch: Any) -> None:
    """Read one element of each page of every tensor in the batch."""
    if isinstance(batch, Tensor):
        touch_tensor(batch)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            touch(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            touch(value)


def touch_tensor(tensor: Tensor) -> None:
    """Read one element of each page of a contiguous tensor."""
    count = tensor.numel()
    if count <= SMALL:
        tensor.sum()
        return
    step = PAGE_BYTES // tensor.element_size()
    tensor.as_strided((count // step,), (step,)).sum()
