"""The slots of one loader: what is given out, what comes back, and the end. Views of them are in test_slots_views.py,
what they cost in test_slots_memory.py, the random walk in test_slots_random.py."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import weakref
from collections.abc import Iterator

import pytest

from holdfast.transport.segments import PAGE, Segment
from holdfast.transport.slots import Slot, SlotPool, ViewRef

from .readings import FIRST_GUESS, count_from_here, descriptors, memory_in_use, pages, segments
from .slots_in_hand import HAS_TORCH, MB, bytes_of, deliver, needs_torch, tensor_in, write

if HAS_TORCH:
    import torch

    from .one_process import travel


@pytest.fixture(autouse=True)
def _nothing_of_earlier_tests() -> None:
    """Readings of memory and descriptors count only this test's own."""
    count_from_here()


# --- granting -----------------------------------------------------------------------------------------------------


def test_slots_that_are_out_are_distinct() -> None:
    """However many are asked for, no two share a byte, and each is large enough."""
    pool = SlotPool(warm_slots=2)
    slots = [pool.acquire() for _ in range(50)]
    ranges = sorted((slot.segment.number, slot.offset, slot.offset + slot.nbytes) for slot in slots)
    for (segment, _, stop), (other, start, _) in itertools.pairwise(ranges):
        assert segment < other or stop <= start
    assert all(slot.nbytes >= FIRST_GUESS for slot in slots)
    assert len({slot.ref for slot in slots}) == 50
    pool.close()


def test_a_slot_is_as_large_as_recent_batches_were_and_as_asked_for() -> None:
    """The forecast decides, unless more is asked for."""
    pool = SlotPool(warm_slots=2)
    assert pool.acquire(at_least_bytes=5 * MB).nbytes >= 5 * MB
    pool.saw_batch(9 * MB)
    assert pool.acquire().nbytes >= 9 * MB
    pool.close()


def test_a_released_slot_is_used_again_with_its_pages() -> None:
    """Reuse is the whole gain: the same slot, its memory still there."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    write(slot, MB)
    pool.release(slot)
    assert memory_in_use() == MB
    assert pool.acquire() is slot
    pool.close()


def test_the_slot_freed_last_is_used_first() -> None:
    """Its pages are the likeliest to be in a cache."""
    pool = SlotPool(warm_slots=3)
    first, second = pool.acquire(), pool.acquire()
    pool.release(first)
    pool.release(second)
    assert pool.acquire() is second
    pool.close()


def test_a_free_slot_that_is_too_small_is_passed_over() -> None:
    """Batches grew: what is granted must hold them."""
    pool = SlotPool(warm_slots=3)
    small = pool.acquire()
    pool.release(small)
    assert pool.acquire(at_least_bytes=small.nbytes + 1).nbytes > small.nbytes
    pool.close()


def test_a_thousand_slots_need_few_descriptors() -> None:
    """Segments grow with the number of slots: one descriptor each, and few of them."""
    pool = SlotPool(warm_slots=4)
    slots = [pool.acquire() for _ in range(1000)]
    assert descriptors() <= 12
    for slot in slots:
        pool.release(slot)
    assert descriptors() <= 12
    pool.close()


def test_slots_of_every_size_at_once_need_few_descriptors() -> None:
    """Powers of four from 1 MB to 1 GB, a hundred of each: address space, not memory, and still few descriptors."""
    pool = SlotPool(warm_slots=4)
    slots = [pool.acquire(at_least_bytes=4**k * MB) for k in range(6) for _ in range(100)]
    assert descriptors() <= 6 * 6
    assert memory_in_use() == 0
    del slots
    pool.close()


def test_a_slot_without_views_is_free_at_once() -> None:
    """A batch of plain Python objects: nothing of it lies in the slot when it is delivered."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    pool.delivered(slot)
    assert pool.acquire() is slot
    pool.close()


# --- adopted and retired slots ------------------------------------------------------------------------------------


def adopt(pool: SlotPool, nbytes: int) -> Slot:
    """What the main process does with a descriptor that came with a header."""
    made = Segment.create(nbytes)
    fd = os.dup(made.fd)
    made.close_fd()
    return pool.adopt(fd, nbytes)


def test_an_adopted_slot_is_used_again_while_batches_are_that_large() -> None:
    """The worker made it, the pool owns it from then on."""
    pool = SlotPool(warm_slots=2)
    slot = adopt(pool, 16 * MB)
    pool.saw_batch(10 * MB)
    del slot.views
    slot.views = set()
    pool.delivered(slot)
    assert pool.acquire() is slot
    pool.close()


def test_an_adopted_slot_that_is_not_needed_is_closed() -> None:
    """Its descriptor, its mapping and its memory are gone, and the workers may forget its number."""
    pool = SlotPool(warm_slots=0)
    slot = adopt(pool, MB)
    write(slot, MB)
    number = slot.segment.number
    pool.release(slot)
    del slot
    assert segments() == {}
    assert pool.dropped_segments == [number]
    pool.close()


def test_a_segment_with_no_slot_out_is_dropped_and_its_number_not_used_again() -> None:
    """Workers know segments by number: one number, one segment, for the life of the pool."""
    pool = SlotPool(warm_slots=0)
    numbers = []
    for _ in range(3):
        slot = pool.acquire()
        numbers.append(slot.segment.number)
        pool.release(slot)
    assert len(set(numbers)) == 3
    assert pool.dropped_segments == numbers
    pool.close()


def test_a_slot_that_a_workers_own_code_keeps_is_never_used_again() -> None:
    """A collate function with a cache: both processes share those bytes, as with torch."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    view = deliver(pool, slot)
    slot.is_retired = True
    del view
    pool.collect()
    assert slot not in [pool.acquire() for _ in range(10)]
    pool.close()


# --- the end ------------------------------------------------------------------------------------------------------


def test_close_gives_back_everything_that_nobody_holds() -> None:
    """Warm slots, cold slots, segments and their descriptors."""
    pool = SlotPool(warm_slots=4)
    for slot in [pool.acquire() for _ in range(30)]:
        write(slot, MB)
        pool.release(slot)
    del slot
    pool.close()
    pool.close()
    assert segments() == {}


def test_a_view_outlives_the_pool_and_takes_its_memory_along() -> None:
    """After close() and after the pool is dropped the bytes are there; with the last view the memory goes at once."""
    pool = SlotPool(warm_slots=4)
    slots = [pool.acquire(), pool.acquire()]
    views = [deliver(pool, slot, 3 * PAGE) for slot in slots]
    watched = weakref.ref(pool)
    pool.close()
    del pool, slots
    gc.collect()
    assert watched() is not None
    assert all(bytes_of(view) == b"x" * 3 * PAGE for view in views)
    assert memory_in_use() == 6 * PAGE
    views.pop()
    assert memory_in_use() == 3 * PAGE
    views.pop()
    gc.collect()
    assert watched() is None
    assert segments() == {}


def test_batches_kept_from_many_closed_pools_hold_no_descriptors() -> None:
    """A user may keep batches of any number of epochs, each with a pool of its own."""
    kept = []
    for _ in range(20):
        pool = SlotPool(warm_slots=2)
        kept.append(deliver(pool, pool.acquire()))
        pool.close()
    del pool
    assert descriptors() == 0
    assert memory_in_use() == 20 * PAGE
    assert all(bytes_of(view) == b"x" * PAGE for view in kept)


def test_close_thins_batches_of_which_a_part_is_kept() -> None:
    """Who keeps a label after the loader is closed keeps a page."""
    pool = SlotPool(warm_slots=4)
    slot = pool.acquire()
    write(slot, MB)
    image, label = tensor_in(pool, slot, 0, MB - 100), tensor_in(pool, slot, MB - 100, 100)
    pool.delivered(slot)
    del image
    pool.close()
    assert memory_in_use() == PAGE
    assert label[0] == ord("x")


@needs_torch
def test_a_batch_that_went_through_the_pool_leaves_nothing() -> None:
    """The whole way of a batch, spilled and not, and then the end."""
    pool = SlotPool(warm_slots=4)
    small, large = travel(torch.ones(1000), pool), travel(torch.ones(2_000_000), pool)
    assert small.sum() == 1000
    assert large.sum() == 2_000_000
    assert memory_in_use() >= pages(4 * 2_000_000)
    del small, large
    pool.close()
    assert segments() == {}


def test_views_that_are_gone_before_their_batch_is_whole_do_not_free_its_slot() -> None:
    """A signal handler raised while it was decoded, or it is decoded again: it is still to be handed over."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    pool.hand_out(slot, 0, 8)  # and at once gone
    assert pool.acquire() is not slot
    buffer, _ = pool.hand_out(slot, 0, 8)
    pool.delivered(slot)
    assert pool.acquire() is not slot
    del buffer
    assert pool.acquire() is slot
    pool.close()


def test_a_slot_that_is_granted_again_is_not_freed_by_a_view_of_before() -> None:
    """The view was gone, and not yet looked at, when the slot was released and given to a worker."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    buffer, _ = pool.hand_out(slot, 0, 8)
    pool.delivered(slot)
    pool.release(slot)
    assert pool.acquire() is slot
    del buffer
    assert pool.acquire() is not slot
    pool.close()


class LetsGoMeanwhile(set[ViewRef]):
    """The views of a slot, one of which another thread lets go of while this one looks through them."""

    def __init__(self, views: set[ViewRef], held: list[memoryview]) -> None:
        super().__init__(views)
        self._held = held

    def __iter__(self) -> Iterator[ViewRef]:
        for ref in super().__iter__():
            if self._held:
                thread = threading.Thread(target=self._held.pop)
                thread.start()
                thread.join()
            yield ref


def test_another_thread_may_let_go_of_a_batch_while_the_pool_is_closed() -> None:
    """Closing comes to its end, and everything is given back."""
    pool = SlotPool(warm_slots=4)
    slot = pool.acquire()
    held = [pool.hand_out(slot, at * PAGE, PAGE)[0] for at in range(4)]
    pool.delivered(slot)
    held.pop()  # so that closing has something to give back, and looks through the others
    slot.views = LetsGoMeanwhile(slot.views, held)
    pool.close()
    assert not held
    assert not pool.in_use()
