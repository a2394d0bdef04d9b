"""A random walk over everything that can happen to slots: granted, filled, delivered, kept, shared, forked, closed.

What must hold after every step: whoever looks at a batch sees the bytes that were delivered, in this process and in a
child that was forked meanwhile; and memory and descriptors stay within what is in use. At the end nothing is left.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.transport import layout
from holdfast.transport.forks import ForkGuard
from holdfast.transport.segments import PAGE
from holdfast.transport.slots import Slot, SlotPool

from .one_process import adopted, begun
from .readings import FIRST_GUESS, count_from_here, descriptors, memory_in_use, pages, segments

MB = 1 << 20
MAX_OUT = 24
"""Slots that are out at once, so that a walk stays fast."""

DERIVED: dict[str, Callable[[Any], Any]] = {
    "a slice": lambda view: view[1:],
    "every third": lambda view: view[::3],
    "reshaped": lambda view: view[: view.shape[0] // 2 * 2].reshape(2, -1),
    "as the other kind": lambda view: view.numpy() if is_tensor(view) else torch.from_numpy(view),
}


def address(memory: memoryview) -> int:
    return torch.frombuffer(memory, dtype=torch.uint8).data_ptr()


def is_tensor(view: Any) -> bool:
    return isinstance(view, torch.Tensor)


def bytes_of(view: Any) -> bytes:
    return (view.numpy() if is_tensor(view) else view).tobytes()


@dataclass(eq=False)
class View:
    """Something the user holds of a batch, and the bytes it must show for as long as it lives."""

    view: Any
    expected: bytes
    may_be_shared: bool = False
    """Not a tensor that was made of an array: share_memory_() frees that array under other views with torch, too."""

    def bounds(self) -> tuple[int, int]:
        """The addresses it looks at now: share_memory_() moves a tensor, and every other tensor on its storage."""
        view = self.view
        if is_tensor(view):
            start, strides = view.data_ptr(), [stride * view.element_size() for stride in view.stride()]
        else:
            start, strides = view.ctypes.data, list(view.strides)
        if not self.expected:
            return start, start
        return start, start + 1 + sum((n - 1) * stride for n, stride in zip(view.shape, strides, strict=True))


@dataclass(eq=False)
class Batch:
    """A delivered batch: its slots, with a look at their memory that the pool does not know, and the user's views."""

    slots: list[Slot]
    memory: list[memoryview]
    views: list[View]
    is_kept_by_worker: bool = False
    guards: list[Child] = field(default_factory=list)

    def may_be_in_use(self) -> bool:
        return bool(self.views) or self.is_kept_by_worker or any(not child.is_over for child in self.guards)

    def read(self) -> list[tuple[Slot, memoryview]]:
        """The parts of slots that the user's views look at."""
        found = []
        for slot, memory in zip(self.slots, self.memory, strict=True):
            base = address(memory)
            for low, high in (view.bounds() for view in self.views):
                if base <= low < high <= base + slot.nbytes:
                    found.append((slot, memory[low - base : high - base]))
        return found


class Child(ForkGuard):
    """A fork, without one. It reads through views of its own, which the pool does not know."""

    def __init__(self, pool: SlotPool, batches: list[Batch]) -> None:
        super().__init__()
        self.keep_reader()
        self.is_over = False
        pool.guard_with(self)
        read = [part for batch in batches for part in batch.read()]
        self.slots = [slot for slot, _ in read]
        self.reads = [(memory, bytes(memory)) for _, memory in read]
        for batch in batches:
            batch.guards.append(self)

    def passed(self) -> bool:
        return self.is_over


class Slots(RuleBasedStateMachine):
    """One pool, and everybody who has something to do with it."""

    @initialize(warm_slots=st.integers(0, 4), seed=st.integers(0, 2**32))
    def start(self, warm_slots: int, seed: int) -> None:
        count_from_here()
        self.chance = random.Random(seed)
        self.warm_slots = warm_slots
        self.pool = SlotPool(warm_slots)
        self.granted: list[Slot] = []
        self.batches: list[Batch] = []
        self.children: list[Child] = []
        self.largest_batch = FIRST_GUESS
        self.is_closed = False

    def _pick(self, items: list[Any]) -> Any:
        return items[self.chance.randrange(len(items))]

    def _content(self, nbytes: int) -> np.ndarray[Any, Any]:
        return np.random.default_rng(self.chance.getrandbits(32)).integers(0, 256, nbytes, dtype=np.uint8)

    @property
    def views(self) -> list[tuple[Batch, View]]:
        return [(batch, view) for batch in self.batches for view in batch.views]

    # -- the main process ------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_closed and len(self.granted) < MAX_OUT)
    @rule(at_least=st.sampled_from([0, 0, 0, 3 * MB, 5 * MB]))
    def a_slot_is_granted(self, at_least: int) -> None:
        slot = self.pool.acquire(at_least)
        assert slot.nbytes >= at_least
        assert not any(_overlap(slot, other) for other in self._must_not_be_granted())
        scribble = min(slot.nbytes, 8 * PAGE)
        slot.peek(0, scribble)[:] = b"\xee" * scribble  # a worker may write where it likes in its slot
        slot.touched = max(slot.touched, scribble)
        self.granted.append(slot)

    def _must_not_be_granted(self) -> list[Slot]:
        read = [slot for batch in self.batches for slot, _ in batch.read()]
        kept = [slot for batch in self.batches if batch.is_kept_by_worker for slot in batch.slots]
        return [*self.granted, *read, *kept, *(slot for child in self.children for slot in child.slots)]

    @precondition(lambda self: not self.is_closed and self.granted)
    @rule()
    def a_unit_is_dropped(self) -> None:
        slot = self._pick(self.granted)
        self.granted.remove(slot)
        self.pool.release(slot)

    @precondition(lambda self: not self.is_closed and self.granted)
    @rule(
        sizes=st.lists(st.sampled_from([0, 1, 700, PAGE, 5 * PAGE, 20_000, 60_000]), min_size=0, max_size=5),
        large=st.sampled_from([0, 0, 0, 0, MB, 3 * MB]),
        kinds=st.integers(0, 2**6),
        is_kept_by_worker=st.sampled_from([False] * 9 + [True]),
    )
    def a_batch_is_delivered(self, sizes: list[int], large: int, kinds: int, is_kept_by_worker: bool) -> None:
        slot = self._pick(self.granted)
        self.granted.remove(slot)
        parts = [self._content(nbytes) for nbytes in (*sizes, *([large] if large else []))]
        batch = [part if kinds >> k & 1 else torch.from_numpy(part.copy()) for k, part in enumerate(parts)]
        writer = begun(slot)
        packed = layout.encode(batch, writer)
        areas = [slot, *adopted(writer, self.pool)]
        for area, used in zip(areas, writer.used_bytes(), strict=True):
            area.touched = pages(max(area.touched, used))
        nbytes = sum(writer.used_bytes())
        writer.end()
        self.pool.saw_batch(nbytes)
        self.largest_batch = max(self.largest_batch, nbytes)
        received = layout.decode(packed, areas, self.pool)
        for area in areas:
            area.is_retired = is_kept_by_worker
            self.pool.delivered(area)
        views = [View(view, part.tobytes(), is_tensor(view)) for view, part in zip(received, parts, strict=True)]
        memory = [area.peek(0, area.nbytes) for area in areas]
        self.batches.append(Batch(areas, memory, views, is_kept_by_worker))

    @rule()
    def the_pool_collects(self) -> None:
        self.pool.collect()

    @precondition(lambda self: not self.is_closed)
    @rule(nbytes=st.sampled_from([10, PAGE, 2 * MB, 6 * MB]), count=st.sampled_from([1, 64, 128]))
    def batches_of_another_size_went_by(self, nbytes: int, count: int) -> None:
        for _ in range(count):
            self.pool.saw_batch(nbytes)
        self.largest_batch = max(self.largest_batch, nbytes)

    # -- the user --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.views)
    @rule(count=st.integers(1, 4))
    def the_user_drops_views(self, count: int) -> None:
        for _ in range(min(count, len(self.views))):
            batch, view = self._pick(self.views)
            batch.views.remove(view)

    @precondition(lambda self: any(batch.views for batch in self.batches))
    @rule()
    def the_user_drops_a_whole_batch(self) -> None:
        self._pick([batch for batch in self.batches if batch.views]).views.clear()

    @precondition(lambda self: self.views)
    @rule(how=st.sampled_from(sorted(DERIVED)), instead=st.booleans())
    def the_user_derives_a_view(self, how: str, instead: bool) -> None:
        batch, view = self._pick(self.views)
        if view.view.ndim != 1:
            return
        derived = DERIVED[how](view.view)
        batch.views.append(View(derived, bytes_of(derived), view.may_be_shared and is_tensor(derived)))
        if instead:
            batch.views.remove(view)

    @precondition(lambda self: self.views)
    @rule()
    def the_user_shares_a_tensor_under_a_numpy_view(self) -> None:
        batch, view = self._pick(self.views)
        if view.may_be_shared and view.view.is_contiguous() and view.view.numel():
            batch.views.append(View(view.view.numpy(), view.expected))
            view.view.share_memory_()

    @precondition(lambda self: self.views)
    @rule()
    def the_user_writes_into_a_view(self) -> None:
        """A batch belongs to the user. Written here only where no other view of the batch could see it."""
        batch, view = self._pick(self.views)
        if len(batch.views) == 1 and view.view.ndim == 1 and view.view.shape[0] and not batch.guards:
            view.view[0] = 7
            view.expected = bytes_of(view.view)

    # -- children --------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.children) < 4)
    @rule()
    def the_user_forks(self) -> None:
        self.children.append(Child(self.pool, self.batches))

    @precondition(lambda self: self.children)
    @rule()
    def a_child_exits(self) -> None:
        child = self._pick(self.children)
        self.children.remove(child)
        child.is_over = True

    # -- the end ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_closed)
    @rule(really=st.sampled_from([False] * 7 + [True]))
    def the_loader_is_closed(self, really: bool) -> None:
        if really:
            self._close()

    def _close(self) -> None:
        for slot in self.granted:
            self.pool.release(slot)
        self.granted.clear()
        self.pool.close()
        self.is_closed = True

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def every_view_shows_what_was_delivered(self) -> None:
        for _, view in self.views:
            assert bytes_of(view.view) == view.expected

    @invariant()
    def every_child_reads_what_it_had(self) -> None:
        for child in self.children:
            for memory, expected in child.reads:
                assert bytes(memory) == expected

    @rule()
    def the_books_are_checked(self) -> None:
        """Memory beyond what may be in use: as many slots as stay warm, each with at most twice the largest batch.
        Descriptors: one for each segment, none after the end, and a segment with no slot out or warm is closed."""
        self.pool.collect()
        self.batches = [batch for batch in self.batches if batch.may_be_in_use()]
        out = [*self.granted, *(slot for batch in self.batches for slot in batch.slots)]
        warm_slots = 0 if self.is_closed else self.warm_slots
        assert memory_in_use() <= sum(slot.touched for slot in out) + warm_slots * 2 * self.largest_batch
        assert descriptors() <= (0 if self.is_closed else len(out) + warm_slots)

    def teardown(self) -> None:
        """From any state: drop everything, and nothing is left."""
        if not hasattr(self, "pool"):
            return
        if not self.is_closed:
            self._close()
        while self.children:
            self.children.pop().is_over = True
        watched = weakref.ref(self.pool)
        self.batches.clear()
        del self.pool
        gc.collect(1)  # usually enough, and quicker
        if watched() is not None:
            gc.collect()
        assert watched() is None
        assert segments() == {}


def _overlap(one: Slot, other: Slot) -> bool:
    apart = one.offset + one.nbytes <= other.offset or other.offset + other.nbytes <= one.offset
    return one.segment is other.segment and not apart


@pytest.mark.parametrize("walks", [40, pytest.param(200, marks=pytest.mark.long)])
def test_no_walk_over_slots_loses_a_byte_or_keeps_one(walks: int) -> None:
    """Granting, delivering, dropping in any order, sharing, forking and closing at any moment."""
    # Without the shrinking of a failure, which would take minutes.
    steady = settings(max_examples=walks, stateful_step_count=50, phases=[Phase.generate])
    run_state_machine_as_test(Slots, settings=steady)
