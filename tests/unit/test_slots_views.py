"""A slot is not used again while anybody can see it: a view of the user's, or a child that the user forked."""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import os
import pickle
import signal
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
from holdfast.transport.segments import PAGE
from holdfast.transport.slots import SlotPool
from waits import PATIENCE_S

from .readings import count_from_here, segments
from .slots_in_hand import HAS_TORCH, bytes_of, deliver, needs_torch, tensor_in, write

if HAS_TORCH:
    import torch

    from .one_process import travel


@pytest.fixture(autouse=True)
def _nothing_of_earlier_tests() -> None:
    """Readings of memory and descriptors count only this test's own."""
    count_from_here()


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


class Interrupted(Exception):
    """Raised by a handler."""


def interrupt(*_: object) -> None:
    raise Interrupted


def test_what_a_signal_handler_raises_while_a_view_goes_is_raised() -> None:
    """In a finalizer of ours it would be lost, as a Ctrl-C, and the slot with it."""
    pool = SlotPool(warm_slots=2)
    slot = pool.acquire()
    views = [deliver(pool, slot)]
    send = functools.partial(getattr(ctypes.CDLL(None), "raise"), int(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            list(map(operator.call, (send, views.clear)))  # all in C: no handler is run before the view goes
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert pool.acquire() is slot
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
