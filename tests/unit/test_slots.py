"""The slots of one loader: what is given out, what comes back, and what it costs. The random walk is in
test_slots_random.py."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.transport.forks import ForkGuard
from holdfast.transport.segments import PAGE, Segment
from holdfast.transport.slots import Slot, SlotPool
from waits import PATIENCE_S

from .readings import FIRST_GUESS, count_from_here, descriptors, memory_in_use, pages, segments

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    from .one_process import travel

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

MB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_of_earlier_tests() -> None:
    """Readings of memory and descriptors count only this test's own."""
    count_from_here()


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


class Blob:
    """A user's class that pickles its bytes out of band, and keeps a view of what it is handed."""

    def __init__(self, data: Any) -> None:
        self.data = memoryview(data)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Blob, (pickle.PickleBuffer(self.data),)


class Child(ForkGuard):
    """A fork, without one: it is over when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.keep_reader()
        self.is_over = False

    def passed(self) -> bool:
        return self.is_over


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


# --- views --------------------------------------------------------------------------------------------------------


def test_a_slot_is_free_when_its_last_view_is_gone_and_not_before() -> None:
    """Three views, dropped one by one."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    write(slot, 3 * PAGE)
    views = [tensor_in(pool, slot, k * PAGE, PAGE) for k in range(3)]
    pool.delivered(slot)
    for _ in range(3):
        assert slot is not pool.acquire()
        views.pop()
    assert slot is pool.acquire()
    pool.close()


@pytest.mark.parametrize("derive", ["slice", "reshape", "detach", "numpy", "numpy of a slice", "memoryview", "storage"])
@needs_torch
def test_whatever_is_derived_from_a_view_keeps_the_slot(derive: str) -> None:
    """The tensor itself may go: what still looks at its bytes is enough."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    tensor = deliver(pool, slot)
    kept: object = {
        "slice": lambda t: t[10:20],
        "reshape": lambda t: t.view(2, -1).T,
        "detach": lambda t: t.detach(),
        "numpy": lambda t: t.numpy(),
        "numpy of a slice": lambda t: t[10:20].numpy(),
        "memoryview": lambda t: memoryview(t.numpy()),
        "storage": lambda t: t.untyped_storage(),
    }[derive](tensor)
    del tensor
    pool.collect()
    assert pool.acquire() is not slot
    del kept
    pool.collect()
    assert pool.acquire() is slot
    pool.close()


@needs_torch
def test_a_clone_does_not_keep_the_slot() -> None:
    """A copy has memory of its own."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    copy = deliver(pool, slot).clone()
    assert pool.acquire() is slot
    assert copy[0] == ord("x")
    pool.close()


@pytest.mark.parametrize("derive", ["whole", "slice", "reshape", "memoryview", "tensor"])
@needs_torch
def test_an_array_of_a_batch_keeps_the_slot(derive: str) -> None:
    """numpy arrays are views of the slot as tensors are, and so is whatever is derived from them."""
    pool = SlotPool(warm_slots=2)
    array = travel(np.arange(5000), pool)
    kept: Any = {
        "whole": lambda a: a,
        "slice": lambda a: a[10:20],
        "reshape": lambda a: a.reshape(50, 100).T,
        "memoryview": memoryview,
        "tensor": torch.from_numpy,
    }[derive](array)
    expected = bytes_of(kept)
    del array
    for _ in range(5):
        slot = pool.acquire()
        write(slot, slot.nbytes, b"y")
    assert bytes_of(kept) == expected
    pool.close()


@needs_torch
def test_a_buffer_that_a_users_class_takes_out_of_band_keeps_the_slot() -> None:
    """Pickle protocol 5: a class may rebuild itself around any view of the bytes that it is handed."""
    pool = SlotPool(warm_slots=2)
    blob = travel(Blob(b"x" * 5000), pool)
    for _ in range(5):
        slot = pool.acquire()
        write(slot, slot.nbytes, b"y")
    assert bytes(blob.data) == b"x" * 5000
    pool.close()


@needs_torch
def test_share_memory_under_a_numpy_view_does_not_free_the_slot() -> None:
    """share_memory_() swaps the storage's memory: the buffer goes, but the array still looks at the slot."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    tensor = deliver(pool, slot)
    array = tensor.numpy()
    tensor.share_memory_()
    pool.collect()
    taken = pool.acquire()
    assert taken is not slot
    write(taken, taken.nbytes, b"y")
    assert bytes(array) == b"x" * PAGE
    del tensor, array
    assert pool.acquire() is slot
    pool.close()


@needs_torch
def test_a_numpy_view_outlives_share_memory_and_the_pool() -> None:
    """As above, and then loader and pool are dropped: the array must not look at memory that is not mapped any more.

    (In a process of its own, because the alternative is a segmentation fault.)
    """
    program = """
        import gc, torch
        from holdfast.transport.slots import SlotPool
        from unit.one_process import travel

        pool = SlotPool(warm_slots=2)
        tensor = travel(torch.arange(100_000), pool)
        array = tensor.numpy()
        tensor.share_memory_()
        pool.close()
        del pool
        gc.collect()
        assert array.tolist() == list(range(100_000))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0


@needs_torch
def test_what_was_seen_through_a_swapped_storage_goes_with_it() -> None:
    """share_memory_() under a numpy view, then close, then the view goes: and with it, at once, the memory."""
    pool = SlotPool(warm_slots=2)
    tensor = deliver(pool, pool.acquire())
    array = tensor.numpy()
    tensor.share_memory_()
    pool.close()
    watched = weakref.ref(pool)
    del pool
    gc.collect()
    assert bytes(array) == b"x" * PAGE
    del tensor, array
    gc.collect()
    assert watched() is None
    assert segments() == {}


def test_views_may_be_dropped_in_any_thread() -> None:
    """The finalizer runs where the last reference goes; only the thread that collects frees the slot."""
    pool = SlotPool(warm_slots=8)
    for _ in range(20):
        slots = [pool.acquire() for _ in range(8)]
        views = [deliver(pool, slot) for slot in slots]
        threads = [threading.Thread(target=views.pop) for _ in slots]
        for thread in threads:
            thread.start()
            pool.collect()
        for thread in threads:
            thread.join(PATIENCE_S)
        pool.collect()
    assert len({id(pool.acquire()) for _ in range(8)} & {id(slot) for slot in slots}) == 8
    pool.close()


def test_a_view_in_a_reference_cycle_is_freed_by_the_collector() -> None:
    """The finalizer runs inside the garbage collector, in the middle of whatever the pool is doing."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    cycle: list[object] = [deliver(pool, slot)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.acquire() is slot
    pool.close()


# --- forks --------------------------------------------------------------------------------------------------------


def test_a_slot_that_a_forked_child_may_read_is_not_used_again() -> None:
    """The parent dropped the batch, the child has it still: its bytes stay until the child is gone."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    view = deliver(pool, slot)
    assert pool.in_use()
    child = Child()
    pool.guard_with(child)
    del view
    pool.collect()
    assert pool.in_use()
    taken = pool.acquire()
    assert taken is not slot
    write(taken, PAGE, b"y")
    assert bytes(slot.peek(0, PAGE)) == b"x" * PAGE
    child.is_over = True
    assert pool.acquire() is slot
    assert not pool.in_use()
    pool.close()


def test_slots_that_nobody_could_read_are_not_guarded() -> None:
    """A unit under way is the workers' business: a child of the user's has no view of it."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    assert not pool.in_use()
    pool.guard_with(Child())
    pool.release(slot)
    assert pool.acquire() is slot
    pool.close()


def test_a_slot_freed_during_two_forks_waits_for_both() -> None:
    """Each child has the memory of its own moment."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    view = deliver(pool, slot)
    first, second = Child(), Child()
    pool.guard_with(first)
    del view
    pool.collect()
    pool.guard_with(second)
    first.is_over = True
    assert pool.acquire() is not slot
    second.is_over = True
    assert pool.acquire() is slot
    pool.close()


def test_what_a_forked_child_may_read_is_not_thinned() -> None:
    """Dead parts of a batch are given back, but not while a child may hold the tensor that lay there."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    write(slot, 4 * PAGE)
    first, second = tensor_in(pool, slot, 0, 2 * PAGE), tensor_in(pool, slot, 2 * PAGE, 2 * PAGE)
    pool.delivered(slot)
    child = Child()
    pool.guard_with(child)
    del first
    pool.collect()
    others = [pool.acquire() for _ in range(20)]
    assert bytes(slot.peek(0, 4 * PAGE)) == b"x" * 4 * PAGE
    del second, others
    pool.close()


def test_a_real_forked_child_reads_its_batch_after_the_parent_reused_everything() -> None:
    """The hooks of a real fork mark the slots in use."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    view = deliver(pool, slot)
    go, say_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go, 1)
        os._exit(0 if bytes_of(view) == b"x" * PAGE else 1)
    os.close(go)
    del view
    others = [pool.acquire() for _ in range(20)]
    for other in others:
        write(other, PAGE, b"y")
    assert slot not in others
    os.write(say_go, b".")
    os.close(say_go)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert slot in [pool.acquire() for _ in range(20)]
    pool.close()


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_forks_that_are_over_leave_no_descriptors_though_the_batch_is_kept() -> None:
    """A user who holds a batch and forks again and again: guards do not add up."""
    pool = SlotPool(warm_slots=2)
    view = deliver(pool, pool.acquire())
    before = _open_descriptors()
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    assert _open_descriptors() <= before + 1
    pool.drop_passed_guards()
    assert _open_descriptors() == before
    del view
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


# --- memory -------------------------------------------------------------------------------------------------------


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
