"""Slots that are pinned: the device reads them itself, and they are used again only when it has done so.

    free ──acquire──► granted ──arrived──► registered ──deliver──► in the user's hands ──last view gone──► fenced
      ▲                                                                                                       │
      └───────────────────────────── every copy that may read it is done ◄────────────────────────────────────┘

Invariants, beyond those of `transport.slots`:
- A slot is written again only when a fence has passed that was set after its last view was gone, on the streams that
  were current in the user's thread and on those he declared.
- No page of a registered range is given back to the system: the device would go on reading the old page. It is
  unregistered first, and before that its copies are waited for. The same before its mapping goes.
- A batch lies within registered memory altogether, or not at all: a copy must not begin in one and end in the other.
- Who runs far ahead of the device waits for it, with an end, before the pool grows any further.
- A device that has failed keeps no pool from closing: what it may still read stays mapped.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence

from holdfast.device.protocols import Fence, Registrar, Streams
from holdfast.device.registering import Pin, Registering, State
from holdfast.transport.segments import PAGE
from holdfast.transport.slots import SLACK, PooledSegment, Slot, SlotPool

_MOST_FENCED = 8  # batches by which the user may be ahead of the device: more would only be more memory to register
_WAIT_FOR_DEVICE_S = 1.0  # before the pool grows all the same
_WAIT_AT_CLOSE_S = 5.0
_WAIT_AT_THE_END_S = 30.0  # of a mapping; past it the mapping stays, for a device that hangs may still read it


class PinnedSlot(Slot):
    """A slot whose first bytes are registered, once it has a pin."""

    __slots__ = ("pin",)

    def __init__(self, segment: PooledSegment, offset: int, nbytes: int) -> None:
        super().__init__(segment, offset, nbytes)
        self.pin: Pin | None = None

    def give_back(self, keep_bytes: int = 0) -> None:
        super().give_back(max(keep_bytes, -(-self.pin.nbytes // PAGE) * PAGE) if self.pin is not None else keep_bytes)


class _Mapped:
    """The pins of one mapping: what is to be undone before it goes. Knows neither the mapping nor the pool."""

    def __init__(self, registering: Registering, streams: Streams) -> None:
        self._registering, self._streams = registering, streams
        self._owner_pid = os.getpid()
        self.pins: set[Pin] = set()

    def let_go(self) -> bool:
        """Called before unmapping, anywhere. False: it must stay mapped."""
        if os.getpid() != self._owner_pid or not self.pins:
            return True  # (a forked process has the memory, but no driver that knows of it)
        if sys.is_finalizing():
            return False
        if any(pin.state is State.PINNED for pin in self.pins):
            if not _is_done(self._streams, _WAIT_AT_THE_END_S):
                return False
            for pin in self.pins:
                self._registering.undo(pin)
        return True


class PinnedSlotPool(SlotPool):
    """All slots of one loader that pins."""

    slot_type = PinnedSlot

    def __init__(self, warm_slots: int, registrar: Registrar, streams: Streams) -> None:
        super().__init__(warm_slots)
        self.streams = streams
        self.most_fenced = min(warm_slots, _MOST_FENCED)
        self._registering = Registering(registrar)
        self._mapped: dict[int, _Mapped] = {}  # by number of the segment
        self._fenced: deque[tuple[PinnedSlot, Fence]] = deque()  # free, but the device may still read them

    @property
    def refusal(self) -> str:
        """Why batches are not pinned, if the driver has refused."""
        return self._registering.refusal

    # -- pinning -----------------------------------------------------------------------------------------------------

    def acquire(self, at_least_bytes: int = 0) -> Slot:
        if self._returned:
            self.collect()
        if self._fenced:
            self._take_passed()
            self._wait_if_far_ahead()
        return super().acquire(at_least_bytes)

    def arrived(self, slots: Sequence[Slot], used: Iterable[int]) -> None:
        """A batch lies in these slots: have so much of each registered by the time it is due.

        Not before: pages that a worker has touched are registered nine times as fast as those that the driver must
        have made, and all workers touch theirs at once.
        """
        for slot, nbytes in zip(slots, used, strict=True):
            assert isinstance(slot, PinnedSlot)
            if slot.pin is not None and slot.pin.nbytes < nbytes:
                self._unpin(slot)  # nobody reads it: it was just filled
            if slot.pin is None and nbytes:
                self._pin(slot, nbytes)

    def finish(self, slots: Sequence[Slot]) -> bool:
        """Wait until all of it is registered. False: it is not, and will not be."""
        finished = [self._finish(slot) for slot in slots]
        return all(finished)

    def _finish(self, slot: Slot) -> bool:
        assert isinstance(slot, PinnedSlot)
        if slot.pin is None or self._registering.finish(slot.pin):
            return True
        self._unpin(slot)
        return False

    def _pin(self, slot: PinnedSlot, nbytes: int) -> None:
        if self._registering.refusal:
            return
        segment = slot.segment
        mapped = self._mapped.get(segment.number)
        if mapped is None:
            mapped = self._mapped[segment.number] = _Mapped(self._registering, self.streams)
            segment.before_unmap(mapped.let_go)
        nbytes = min(slot.nbytes, max(nbytes, self._forecast.nbytes))
        slot.pin = Pin(segment.address + slot.offset, nbytes)
        slot.touched = max(slot.touched, nbytes)
        mapped.pins.add(slot.pin)
        self._registering.ask(slot.pin, segment.memory)

    def _unpin(self, slot: PinnedSlot) -> None:
        if slot.pin is not None:
            pin, slot.pin = slot.pin, None
            self._registering.undo(pin)
            self._mapped[slot.segment.number].pins.discard(pin)

    # -- fences ------------------------------------------------------------------------------------------------------

    def release(self, slot: Slot) -> None:
        assert isinstance(slot, PinnedSlot)
        if slot.pin is None or slot not in self._delivered:
            super().release(slot)
            return
        slot.views.clear()
        self._delivered.discard(slot)
        if self._closed:
            if _is_done(self.streams, _WAIT_AT_CLOSE_S):
                super().release(slot)
            return  # or it is let go with its mapping
        self._fenced.append((slot, self.streams.fence()))  # looked at when a slot or memory is wanted

    def _take_passed(self) -> None:
        fenced = self._fenced
        while fenced and fenced[0][1].passed():
            super().release(fenced.popleft()[0])

    def _wait_if_far_ahead(self) -> None:
        fenced = self._fenced
        if len(fenced) > self.most_fenced and fenced[0][1].wait(_WAIT_FOR_DEVICE_S):
            super().release(fenced.popleft()[0])

    # -- memory ------------------------------------------------------------------------------------------------------

    def memory_bytes(self) -> tuple[int, int]:
        self._take_passed()
        given_out, free = super().memory_bytes()
        return given_out + sum(slot.touched for slot, _ in self._fenced), free

    def _free(self, slot: Slot) -> None:
        assert isinstance(slot, PinnedSlot)
        if slot.pin is not None and slot.pin.nbytes > SLACK * self._forecast.nbytes:
            self._unpin(slot)  # from when batches were larger: registered again, as far as is needed now
        super()._free(slot)

    def _cool(self, slot: Slot) -> None:
        assert isinstance(slot, PinnedSlot)
        self._unpin(slot)
        super()._cool(slot)

    def _thin_delivered(self) -> None:
        """Pinned memory is not given back page by page."""

    def _drop(self, segment: PooledSegment) -> None:
        self._mapped.pop(segment.number, None)
        super()._drop(segment)

    def close(self) -> None:
        self._registering.end()
        if not self._closed:
            with contextlib.suppress(RuntimeError):  # (as in `_is_done`)
                self._wait_for_fenced()
        super().close()

    def _wait_for_fenced(self) -> None:
        self.collect()
        end = time.monotonic() + _WAIT_AT_CLOSE_S
        while self._fenced:
            slot, fence = self._fenced.popleft()
            if fence.wait(max(0.0, end - time.monotonic())):
                super().release(slot)
            # else it is let go with its mapping


def _is_done(streams: Streams, timeout_s: float) -> bool:
    """Whether the device has read all that it was asked to. Not if that cannot be known: a graph is being captured, or
    the device has failed (an assert in a kernel of the user's, say), and every call of CUDA's fails from then on. Whose
    training ends by that has his own exception to read, and none of ours behind it.
    """
    try:
        return streams.may_wait() and streams.fence().wait(timeout_s)
    except RuntimeError:
        return False
