"""What the tests of slots share: how one is written, and handed out as a view. With torch, where there is torch.

Runs in: the test process.
"""

from __future__ import annotations

import importlib.util
import weakref
from typing import Any

import pytest

from holdfast.transport.segments import PAGE
from holdfast.transport.slots import Slot, SlotPool

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

MB = 1 << 20


def write(slot: Slot, nbytes: int, byte: bytes = b"x") -> None:
    """What a worker does with a slot, and the main process with the header."""
    slot.peek(0, nbytes)[:] = byte * nbytes
    slot.touched = max(slot.touched, nbytes)


def tensor_in(pool: SlotPool, slot: Slot, start: int, nbytes: int) -> Any:
    """A view as the user gets it: a tensor, or an array where there is no torch."""
    if not HAS_TORCH:
        return pool.hand_out_array(slot, start, nbytes)
    buffer, ref = pool.hand_out(slot, start, nbytes)
    tensor = torch.frombuffer(buffer, dtype=torch.uint8)
    ref.storage = weakref.ref(tensor.untyped_storage())
    return tensor


def deliver(pool: SlotPool, slot: Slot, nbytes: int = PAGE) -> Any:
    """A batch of one tensor that fills the slot's first bytes."""
    write(slot, nbytes)
    tensor = tensor_in(pool, slot, 0, nbytes)
    pool.delivered(slot)
    return tensor


def bytes_of(view: Any) -> bytes:
    """A copy of what an array, a tensor or a memoryview looks at."""
    return (view.numpy() if hasattr(view, "numpy") else view).tobytes()
