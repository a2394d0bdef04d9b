"""What slots cost: only those in circulation keep their memory, and of a batch only what is looked at."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.transport.segments import PAGE
from holdfast.transport.slots import SlotPool

from .readings import FIRST_GUESS, count_from_here, memory_in_use
from .slots_in_hand import MB, bytes_of, deliver, tensor_in, write


@pytest.fixture(autouse=True)
def _nothing_of_earlier_tests() -> None:
    """Readings of memory and descriptors count only this test's own."""
    count_from_here()


def test_only_the_warm_slots_keep_memory_in_use() -> None:
    """A user who kept many batches and drops them gives their memory back, but for those in circulation."""
    pool = SlotPool(warm_slots=3)
    views = [deliver(pool, pool.acquire(), MB) for _ in range(20)]
    assert memory_in_use() == 20 * MB
    views.clear()
    pool.collect()
    assert memory_in_use() == 3 * MB
    pool.close()


def test_a_slot_far_larger_than_batches_are_now_keeps_little() -> None:
    """One large batch in between: its tail is given back when its slot is freed."""
    pool = SlotPool(warm_slots=3)
    slot = pool.acquire(at_least_bytes=64 * MB)
    write(slot, 10 * MB)
    pool.release(slot)
    assert memory_in_use() <= 2 * FIRST_GUESS
    pool.close()


def test_a_slot_that_went_cold_holds_no_memory_at_all() -> None:
    """Also when batches do not end at a page's border, and grew smaller from use to use."""
    pool = SlotPool(warm_slots=0)
    anchor = pool.acquire()  # keeps the segment from being dropped
    slot = pool.acquire()
    for pages_used in range(12, 0, -1):
        write(slot, pages_used * PAGE - 1000)
        pool.release(slot)
        assert pool.acquire() is slot
    assert memory_in_use() == 0
    pool.release(anchor)
    pool.close()


def test_small_free_slots_do_not_keep_large_ones_from_staying_warm() -> None:
    """Batches grew: the slots that fit them must be the warm ones, or every batch pays for fresh pages."""
    pool = SlotPool(warm_slots=2)
    small = [pool.acquire(), pool.acquire()]
    for slot in small:
        write(slot, MB)
        pool.release(slot)
    pool.saw_batch(8 * MB)
    pool.acquire()
    large = pool.acquire()
    write(large, 8 * MB)
    pool.release(large)
    assert bytes(large.peek(0, 8)) == b"x" * 8
    assert memory_in_use() <= 2 * 8 * MB
    pool.close()


def test_free_slots_forget_large_batches_with_the_forecast() -> None:
    """Batches shrank for good: warm slots that are not reached any more do not hold the memory of large ones."""
    pool = SlotPool(warm_slots=6)
    pool.saw_batch(8 * MB)
    slots = [pool.acquire() for _ in range(6)]
    for slot in slots:
        write(slot, 8 * MB)
        pool.release(slot)
    for _ in range(500):
        slot = pool.acquire()
        pool.saw_batch(PAGE)
        pool.release(slot)
    assert memory_in_use() <= 6 * 2 * FIRST_GUESS
    pool.close()


def test_keeping_a_small_tensor_of_each_large_batch_keeps_its_pages_only() -> None:
    """When the pool would grow, what lies between the kept tensors is given back."""
    pool = SlotPool(warm_slots=2)
    kept = []
    for k in range(64):
        slot = pool.acquire()
        write(slot, MB, bytes([k]))
        image, label = tensor_in(pool, slot, 0, MB - PAGE), tensor_in(pool, slot, MB - PAGE, 100)
        pool.delivered(slot)
        del image
        kept.append(label)
    others = [pool.acquire() for _ in range(300)]
    assert memory_in_use() == 64 * PAGE
    assert all(label.tolist() == [k] * 100 for k, label in enumerate(kept))
    del others
    pool.close()


def test_thinning_keeps_every_byte_of_every_view_that_is_left() -> None:
    """Views that share pages, touch and overlap; every second one is dropped."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    content = np.random.default_rng(0).bytes(16 * PAGE)
    slot.peek(0, 16 * PAGE)[:] = content
    slot.touched = 16 * PAGE
    ranges = [(k * 3000, 5000) for k in range(16)]
    views = [tensor_in(pool, slot, start, nbytes) for start, nbytes in ranges]
    pool.delivered(slot)
    del views[::4]
    pool.collect()
    others = [pool.acquire() for _ in range(20)]
    for view, (start, nbytes) in zip(views, [r for k, r in enumerate(ranges) if k % 4], strict=True):
        assert bytes_of(view) == content[start : start + nbytes]
    del others
    pool.close()


def test_thinning_keeps_a_view_that_contains_another() -> None:
    """A small view inside a large one does not make the rest of the large one dead."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    write(slot, 16 * PAGE)
    large, inside = tensor_in(pool, slot, 0, 8 * PAGE), tensor_in(pool, slot, 2 * PAGE, 100)
    last = tensor_in(pool, slot, 12 * PAGE, PAGE)
    pool.delivered(slot)
    del last
    pool.close()
    assert memory_in_use() == 8 * PAGE
    assert large.tolist() == [ord("x")] * 8 * PAGE
    assert inside.tolist() == [ord("x")] * 100
