"""A call on its way to a worker: what goes into slots, what is named when it cannot be sent, and what is kept."""

from __future__ import annotations

import gc
import operator
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import NotPicklable
from holdfast.transport.arguments import Borrower, LentSlot, Packed, Packer
from holdfast.transport.main_module import SentByName
from holdfast.transport.slots import SlotPool


@pytest.fixture
def slots() -> Iterator[SlotPool]:
    pool = SlotPool(warm_slots=4)
    yield pool
    pool.close()


def pack(slots: SlotPool, *args: Any, **kwargs: Any) -> Packed:
    return Packer(slots, SentByName(is_forked=False)).pack(operator.itemgetter(0), args, kwargs)


def unpack(packed: Packed, borrower: Borrower) -> tuple[Any, Any, Any]:
    return borrower.unpack(packed.layout, [LentSlot(slot.peek(0, slot.nbytes)) for slot in packed.slots])


def test_what_is_small_needs_no_slot(slots: SlotPool) -> None:
    """Numbers, texts, and arrays of a few bytes."""
    packed = pack(slots, 1, "two", np.arange(4), k=[5.0])
    assert packed.slots == ()
    _, args, kwargs = unpack(packed, Borrower())
    assert (args[:2], list(args[2]), kwargs) == ((1, "two"), [0, 1, 2, 3], {"k": [5.0]})


def test_arrays_and_tensors_lie_in_slots_and_are_not_copied_again(slots: SlotPool) -> None:
    """A worker that writes to one writes to the slot."""
    packed = pack(slots, np.arange(5000), torch.arange(7000))
    assert len(packed.slots) == 1
    _, (array, tensor), _ = unpack(packed, Borrower())
    assert np.array_equal(array, np.arange(5000))
    assert torch.equal(tensor, torch.arange(7000))
    array[0] = 77
    assert bytes(packed.slots[0].peek(0, 8)) == array[:1].tobytes()


def test_what_does_not_fit_into_one_slot_goes_into_several(slots: SlotPool) -> None:
    """Whatever was expected."""
    packed = pack(slots, np.zeros(1000), np.ones(3_000_000))
    assert len(packed.slots) > 1
    _, (small, large), _ = unpack(packed, Borrower())
    assert (small.sum(), large.sum()) == (0, 3_000_000)


def test_what_cannot_be_pickled_is_named_and_its_slots_are_free(slots: SlotPool) -> None:
    """By its place among the arguments, and in there."""
    with pytest.raises(NotPicklable) as caught:
        pack(slots, np.zeros(5000), {"lock": threading.Lock()})
    assert caught.value.path == "argument 1['lock']"
    with pytest.raises(NotPicklable, match="argument 'gate'"):
        pack(slots, gate=threading.Lock())
    first = slots.acquire()
    assert first.touched > 0, "the slot of the array that was written before is used again"
    slots.release(first)


@pytest.mark.parametrize("make", [np.ones, torch.ones], ids=["numpy", "torch"])
def test_what_is_kept_is_noticed_and_then_copied(slots: SlotPool, make: Any) -> None:
    """Once; a view of it counts as well. What is let go does not."""
    borrower = Borrower()
    _, args, _ = unpack(pack(slots, make(5000)), borrower)
    del args
    gc.collect()
    assert not borrower.are_kept()
    _, (kept,), _ = unpack(pack(slots, make(5000)), borrower)
    view = kept[10:20]
    del kept
    assert borrower.are_kept()
    packed = pack(slots, make(5000))
    _, (copied,), _ = unpack(packed, borrower)
    packed.slots[0].peek(0, packed.slots[0].nbytes)[:] = bytes(packed.slots[0].nbytes)
    assert not borrower.are_kept()
    assert float(copied.sum()) == 5000
    assert len(view) == 10
