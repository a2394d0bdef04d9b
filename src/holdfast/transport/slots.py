"""The slots of one loader: who has which, and when one may be used again.

The main process owns every slot. A slot is granted to a unit of work, filled by a worker, and delivered as tensors and
arrays that are views of it. It is free again when the last of them is gone:

    free ──acquire──► granted ──deliver──► in the user's hands ──last view gone──► free
                         └──────release (unit dropped)──────────────────────────────┘

Invariants:
- A slot is never written while anyone may read it: not while a view lives (a weak reference to the view's buffer), not
  while its storage lives on after `share_memory_()` or a send through a queue took the buffer away from under a numpy
  view (a weak reference to the storage), not while a process forked with it may read it (`forks.py`).
- A user who keeps every batch makes the pool grow; nothing ever waits for a slot.
- The finalizer of a view may run in any thread, inside the collector, or in a forked child: it appends to a deque. No
  code of Python's runs there until close(): a signal handler could raise in it, and what a finalizer raises is lost,
  such as a Ctrl-C, and with it the slot.
- Memory that nobody needs is given back: tails beyond what batches need now, slots beyond those in circulation, and
  the dead parts of slots of which the user keeps only some tensors.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.transport.forecast import SizeForecast
from holdfast.transport.forks import ForkGuard, watch
from holdfast.transport.segments import PAGE, Handle, Segment, slot_bytes_for

_FIRST_GUESS = 1 << 20
_FIRST_SEGMENT_SLOTS = 4
_LARGEST_SEGMENT_SLOTS = 256
_CLOSE_WAITS_S = 5.0  # for another thread that is collecting, which takes microseconds
SLACK = 2  # how much more than expected a free slot may keep in memory


class ViewRef(weakref.ref[Any]):
    """Alive while a buffer that was handed out lives. Remembers which bytes of which slot it covers."""

    __slots__ = ("slot", "start", "stop", "storage")

    slot: Slot
    start: int
    stop: int
    storage: weakref.ref[Any] | None  # the torch storage on top of the buffer, if there is one

    # by identity: a weak reference compares and hashes as what it refers to, and a memoryview cannot be hashed
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def is_gone(self) -> bool:
        return self() is None and (self.storage is None or self.storage() is None)


class PooledSegment(Segment):
    """A segment cut into equal slots, with a number that workers know it by."""

    __slots__ = ("is_reusable", "number", "slot_count", "slots_out")

    number: int
    slot_count: int
    slots_out: int
    is_reusable: bool  # workers can be told of it


class Slot:
    """A range of a segment. `touched` bytes of it, from its start, may hold memory."""

    __slots__ = ("guards", "is_retired", "nbytes", "offset", "ref", "segment", "thinned", "touched", "views")

    def __init__(self, segment: PooledSegment, offset: int, nbytes: int) -> None:
        self.segment = segment
        self.offset = offset
        self.nbytes = nbytes
        self.ref = (segment.number, offset, nbytes)  # what a worker knows it by
        self.touched = 0
        self.is_retired = False  # a worker's own code holds memory of it
        self.thinned = 0  # how many views were left when dead parts were last given back
        self.views: set[ViewRef] = set()
        self.guards: list[ForkGuard] = []

    def may_be_read_elsewhere(self) -> bool:
        """Whether a forked process may still hold what this slot contained."""
        for guard in list(self.guards):
            if guard.passed():
                with contextlib.suppress(ValueError):  # another thread, closing its loader, was faster
                    self.guards.remove(guard)
        return bool(self.guards)

    def peek(self, start: int, nbytes: int) -> memoryview:
        """Bytes to be read at once and not kept."""
        at = self.offset + start
        return self.segment.view[at : at + nbytes]

    @property
    def touched_end(self) -> int:
        """Where, in the segment, memory that belongs to this slot ends: its last touched page is its own."""
        return self.offset + -(-self.touched // PAGE) * PAGE

    def give_back(self, keep_bytes: int = 0) -> None:
        if self.touched > keep_bytes:
            self.segment.give_back(self.offset + keep_bytes, self.touched_end)
            self.touched = keep_bytes


class SlotPool:
    """All slots of one loader. `warm_slots` free ones keep their memory; the rest give it back."""

    slot_type: type[Slot] = Slot

    def __init__(self, warm_slots: int) -> None:
        self.warm_slots = warm_slots
        self._owner_pid = os.getpid()
        self._forecast = SizeForecast(_FIRST_GUESS)
        self._segments: dict[int, PooledSegment] = {}
        self._next_number = 0
        self._warm: list[Slot] = []
        self._cold: list[Slot] = []
        self._delivered: set[Slot] = set()
        self._guarded: list[Slot] = []  # free, but a forked child may still read them
        self._lingering: list[ViewRef] = []  # buffer gone, storage alive
        self._returned: deque[ViewRef] = deque()
        self._on_gone = functools.partial(self._returned.append)
        self._collecting = threading.Lock()
        self._collector = 0  # the thread that holds the lock
        self._closed = False
        self.dropped_segments: list[int] = []  # numbers that workers may forget; whoever tells them clears the list
        self.new_name: Callable[[], str] | None = None  # set by a backend whose workers open segments by name
        watch(self)

    # -- granting and returning ------------------------------------------------------------------------------------

    def acquire(self, at_least_bytes: int = 0) -> Slot:
        """A slot fit for the next batch. Never waits: grows the pool if none is free."""
        if self._returned or self._lingering or self._guarded:
            self.collect()
        wanted = max(self._forecast.nbytes, at_least_bytes)
        return _take(self._warm, wanted) or self._rewarm(wanted) or self._grow(wanted)

    def adopt(self, handle: Handle, nbytes: int) -> Slot:
        """Take over a segment that a worker made because its batch outgrew its slot.

        Where segments go by name it serves this one batch: its name is gone, and no other worker could open it.
        """
        segment = self._add(PooledSegment(handle, nbytes), slots=1)
        segment.is_reusable = self.new_name is None
        return self.slot_type(segment, 0, nbytes)

    def release(self, slot: Slot) -> None:
        """The slot has no views (any more): use it again."""
        slot.views.clear()
        self._delivered.discard(slot)
        if slot.is_retired:
            return
        if slot.may_be_read_elsewhere():
            self._guarded.append(slot)
        else:
            self._free(slot)

    def saw_batch(self, nbytes: int) -> None:
        if self._forecast.saw(nbytes):
            for slot in self._warm:
                slot.give_back(keep_bytes=SLACK * self._forecast.nbytes)

    # -- delivering ------------------------------------------------------------------------------------------------

    def hand_out(self, slot: Slot, start: int, nbytes: int) -> tuple[memoryview, ViewRef]:
        """A buffer over bytes of the slot, and the reference that knows when it is gone."""
        at = slot.offset + start
        buffer = slot.segment.view[at : at + nbytes]
        return buffer, self._track(buffer, slot, start, nbytes)

    def hand_out_array(self, slot: Slot, start: int, nbytes: int) -> np.ndarray[Any, Any]:
        """The same as an array of bytes, for consumers that take a view of what they get, as numpy does.

        A view of a memoryview would not keep that memoryview alive, only the mapping below it.
        """
        at = slot.offset + start
        array = np.frombuffer(slot.segment.view[at : at + nbytes], dtype=np.uint8)
        self._track(array, slot, start, nbytes)
        return array

    def _track(self, buffer: Any, slot: Slot, start: int, nbytes: int) -> ViewRef:
        ref = ViewRef(buffer, self._on_gone)
        ref.slot, ref.start, ref.stop, ref.storage = slot, start, start + nbytes, None
        slot.views.add(ref)
        return ref

    def delivered(self, slot: Slot) -> None:
        """The batch in the slot is complete: from here on its views decide."""
        if slot.views:
            slot.thinned = len(slot.views)
            self._delivered.add(slot)
        else:
            self.release(slot)

    def collect(self) -> None:
        """Free the slots whose last view went away since the last call."""
        # If another thread holds the lock, or this one further down the stack, the views are left to it: the holder
        # looks for more after it has released the lock.
        returned = self._returned
        while self._collecting.acquire(blocking=False):
            try:
                self._collector = threading.get_ident()
                while returned:
                    ref = returned.popleft()
                    storage = ref.storage and ref.storage()
                    if storage is None:
                        self._forget_view(ref)
                    else:
                        ref.storage = weakref.ref(storage, self._on_storage_gone)
                        self._lingering.append(ref)
                if self._lingering:
                    self._recheck_lingering()
                if self._guarded:
                    self._recheck_guarded()
                if self._closed:
                    (_closed_but_seen.add if self._lingering else _closed_but_seen.discard)(self)
            finally:
                self._collector = 0
                self._collecting.release()
            if not returned:
                return

    def _on_gone_after_close(self, ref: ViewRef) -> None:
        # Runs anywhere, any time, also in the middle of the methods above. Nobody collects any more, so the memory is
        # given back here, with one system call.
        self._returned.append(ref)
        if os.getpid() == self._owner_pid:
            self.collect()

    def _on_storage_gone(self, _: object) -> None:
        if self._closed and os.getpid() == self._owner_pid:
            self.collect()

    def _forget_view(self, ref: ViewRef) -> None:
        slot = ref.slot
        slot.views.discard(ref)
        # Only slots that were delivered: after an interrupted decode the views are gone, but the batch is still due.
        if not slot.views and slot in self._delivered:
            self.release(slot)

    def _recheck_lingering(self) -> None:
        still = [ref for ref in self._lingering if not ref.is_gone()]
        gone = [ref for ref in self._lingering if ref.is_gone()]
        self._lingering = still
        for ref in gone:
            self._forget_view(ref)

    def _recheck_guarded(self) -> None:
        slots, self._guarded = self._guarded, []
        for slot in slots:
            self.release(slot)

    # -- forks (called by the hooks of forks.py) -------------------------------------------------------------------

    def in_use(self) -> bool:
        return bool(self._delivered or self._guarded)

    def guard_with(self, guard: ForkGuard) -> None:
        self.drop_passed_guards()
        for slot in (*list(self._delivered), *self._guarded):
            slot.guards.append(guard)

    def drop_passed_guards(self) -> None:
        """Let go of the descriptors of forks that are over, also for slots that stay in use."""
        for slot in (*list(self._delivered), *self._guarded):
            slot.may_be_read_elsewhere()

    # -- memory ----------------------------------------------------------------------------------------------------

    def memory_bytes(self) -> tuple[int, int]:
        """Of slots in the user's hands, and of free ones."""
        given_out = sum(slot.touched for slot in (*list(self._delivered), *self._guarded))
        return given_out, sum(slot.touched for slot in self._warm)

    def keep_warm(self, slots: int) -> None:
        """From now on so many free ones keep their memory."""
        self.warm_slots = slots
        while len(self._warm) > slots:
            self._cool(self._warm.pop(0))

    def _free(self, slot: Slot) -> None:
        if len(self._warm) >= self.warm_slots:
            self._cool_small_ones()
        too_small = slot.nbytes < self._forecast.nbytes
        if self._closed or too_small or len(self._warm) >= self.warm_slots or not slot.segment.is_reusable:
            self._cool(slot)
        else:
            slot.give_back(keep_bytes=SLACK * self._forecast.nbytes)
            self._warm.append(slot)

    def _cool_small_ones(self) -> None:
        """Free slots from when batches were smaller must not take the place of those that will be used."""
        small = [slot for slot in self._warm if slot.nbytes < self._forecast.nbytes]
        self._warm = [slot for slot in self._warm if slot.nbytes >= self._forecast.nbytes]
        for slot in small:
            self._cool(slot)

    def _cool(self, slot: Slot) -> None:
        slot.give_back()
        self._cold.append(slot)
        slot.segment.slots_out -= 1
        if slot.segment.slots_out == 0:
            self._drop(slot.segment)

    def _rewarm(self, wanted: int) -> Slot | None:
        slot = _take(self._cold, wanted)
        if slot is not None:
            slot.segment.slots_out += 1
        return slot

    def _grow(self, wanted: int) -> Slot:
        self._thin_delivered()
        slot_bytes = slot_bytes_for(wanted)
        of_this_size = sum(s.slot_count for s in self._segments.values() if s.nbytes == s.slot_count * slot_bytes)
        count = min(max(of_this_size, _FIRST_SEGMENT_SLOTS), _LARGEST_SEGMENT_SLOTS)
        name = self.new_name() if self.new_name is not None else ""
        segment = self._add(PooledSegment.create(slot_bytes * count, name), slots=count)
        fresh = [self.slot_type(segment, k * slot_bytes, slot_bytes) for k in range(count)]
        segment.slots_out = 1
        self._cold.extend(reversed(fresh[1:]))
        return fresh[0]

    def _thin_delivered(self) -> None:
        """Give back what lies between the views of delivered batches of which some tensors are gone."""
        for slot in list(self._delivered):
            if len(slot.views) < slot.thinned and not slot.may_be_read_elsewhere():
                slot.thinned = len(slot.views)
                at = 0
                for start, stop in sorted((ref.start, ref.stop) for ref in slot.views):
                    slot.segment.give_back(slot.offset + at, slot.offset + start)
                    at = max(at, stop)
                slot.segment.give_back(slot.offset + at, slot.touched_end)

    def _add(self, segment: PooledSegment, slots: int) -> PooledSegment:
        segment.is_reusable = True
        segment.number, segment.slot_count, segment.slots_out = self._next_number, slots, slots
        self._next_number += 1
        self._segments[segment.number] = segment
        return segment

    def _drop(self, segment: PooledSegment) -> None:
        self._cold = [slot for slot in self._cold if slot.segment is not segment]
        del self._segments[segment.number]
        segment.close_fd()
        self.dropped_segments.append(segment.number)

    def close(self) -> None:
        """No more batches: give back all but what the user still holds. Later releases give back at once."""
        self._closed = True
        # The one callback of all views, of those that are out, too.
        self._on_gone.__setstate__((self._on_gone_after_close, (), {}, {}))  # type: ignore[attr-defined]
        self.collect()
        # From here on other threads collect, too, when they drop tensors: keep them out. This thread may hold the lock
        # already, if garbage collection closes the loader in the middle of collect().
        has_lock = self._collector != threading.get_ident() and self._collecting.acquire(timeout=_CLOSE_WAITS_S)
        try:
            warm, self._warm = self._warm, []
            for slot in warm:
                self._cool(slot)
            for segment in list(self._segments.values()):
                segment.retire(owner=self)
            self._thin_delivered()
        finally:
            if has_lock:
                self._collecting.release()
        self.collect()
        for pool in list(_closed_but_seen):
            pool.collect()


# Pools whose memory is still seen through a storage that no longer holds its buffer: nothing else keeps them alive.
_closed_but_seen: set[SlotPool] = set()


def _take(slots: list[Slot], wanted: int) -> Slot | None:
    """The most recently freed slot that is large enough: its pages are the likeliest to be in a cache."""
    for at in range(len(slots) - 1, -1, -1):
        if slots[at].nbytes >= wanted:
            return slots.pop(at)
    return None
