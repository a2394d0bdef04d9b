"""Where a worker writes the batch in hand: the slot it was granted, and memory of its own when that is too small.

    area 0          the granted slot, owned by the main process
    area 1, 2, ...  segments the worker makes when the batch outgrows it; their handles travel with the header, the main
                    process adopts them, and from then on grants slots of that size. No round trip, no waiting.

Within an area, space is given out from the start, aligned, and never taken back: the whole is reset with the next unit.
Runs in: worker process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.transport.segments import Handle, Segment, discard, map_pages, slot_bytes_for

_ALIGN = 64  # a cache line: what vectorised kernels like, and more than any dtype needs
_WORTH_MAPPING = 1 << 20  # bytes at once; for less, the faults cost no more than asking


@dataclass(slots=True)
class Area:
    """A range of mapped memory that is being filled."""

    view: memoryview
    address: int
    nbytes: int
    used: int = 0
    peak: int = 0  # the most that was used for this unit: what was written and forgotten takes memory too
    mapped: int = 0  # bytes from its start whose pages this process has: every slot is new to every worker once
    spilled: Segment | None = None

    def take(self, start: int, nbytes: int) -> None:
        """Give out these bytes, which will be written to."""
        self.used = start + nbytes
        if self.used - self.mapped >= _WORTH_MAPPING:
            map_pages(self.address + self.mapped, self.used - self.mapped)
            self.mapped = self.used


def area_of(view: memoryview) -> Area:
    return Area(view, torch.frombuffer(view, dtype=torch.uint8).data_ptr(), len(view))


class SlotWriter:
    """Gives out the space of one unit's areas.

    `accepts_tensors` while a collate function may build its result here; not during `__getitem__`, whose tensors may
    outlive the unit in a cache of the user's. `new_name` where the main process opens segments by name.
    """

    def __init__(self, new_name: Callable[[], str] | None = None) -> None:
        self._new_name = new_name
        self.areas: list[Area] = []
        self.accepts_tensors = False
        self._built: list[weakref.ref[memoryview]] = []
        self._someone_keeps = False

    def begin(self, slot: Area) -> None:
        """Start a unit."""
        slot.used = 0
        self.start_over(slot)
        slot.peak = 0
        self._built = []
        self.begin_collate()

    def begin_fetch(self) -> None:
        """The dataset runs: what it builds may outlive the unit."""
        self.accepts_tensors = False

    def begin_collate(self) -> None:
        """The loader's own collate function runs."""
        self.accepts_tensors = not self._someone_keeps

    def start_over(self, slot: Area) -> None:
        """Forget what was written for this unit, though not who may hold it: something else is sent instead."""
        self._discard_names()
        self.end()
        slot.peak = max(slot.peak, slot.used)
        slot.used = 0
        self.areas = [slot]

    def reserve(self, nbytes: int) -> tuple[int, int]:
        """Space for `nbytes`: (area, offset in it)."""
        last = len(self.areas) - 1
        area = self.areas[last]
        start = -(-area.used // _ALIGN) * _ALIGN
        if start + nbytes <= area.nbytes:
            area.take(start, nbytes)
            return last, start
        self._spill(max(nbytes, 2 * area.nbytes))
        self.areas[-1].take(0, nbytes)
        return last + 1, 0

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...], nbytes: int) -> Tensor:
        """A tensor of that shape whose memory is in the slot."""
        area, start = self.reserve(nbytes)
        buffer = self.areas[area].view[start : start + nbytes]
        self._built.append(weakref.ref(buffer))
        return torch.frombuffer(buffer, dtype=dtype).resize_(shape)

    @property
    def can_build(self) -> bool:
        """Whether there is a unit in hand, and nobody keeps what is built."""
        return bool(self.areas) and not self._someone_keeps

    def is_kept(self) -> bool:
        """Whether the user's code in this process still holds a tensor that was built in the slot.

        Asked when the batch has been laid out and let go. Such a slot must not be used again while this process lives
        (as with torch, both sides then share that memory), and from now on nothing more is built in place here.
        """
        kept = any(ref() is not None for ref in self._built)
        self._someone_keeps |= kept
        return kept

    def write(self, data: memoryview | bytes) -> tuple[int, int, int]:
        """Copy bytes in: (area, offset, length)."""
        nbytes = len(data)
        area, start = self.reserve(nbytes)
        self.areas[area].view[start : start + nbytes] = data
        return area, start, nbytes

    def locate(self, address: int) -> tuple[int, int] | None:
        """The (area, offset) of memory that already lies in one of the areas."""
        for number, area in enumerate(self.areas):
            if area.address <= address < area.address + area.used:
                return number, address - area.address
        return None

    def spilled_handles(self) -> list[Handle]:
        return [area.spilled.name or area.spilled.fd for area in self.areas if area.spilled is not None]

    def spilled_bytes(self) -> list[int]:
        return [area.nbytes for area in self.areas if area.spilled is not None]

    def used_bytes(self) -> list[int]:
        return [max(area.used, area.peak) for area in self.areas]

    def end(self) -> None:
        """The header has been sent, or the unit dropped: what was spilled belongs to the main process now."""
        for area in self.areas:
            if area.spilled is not None:
                area.spilled.close_fd()
        self.areas = []
        self.accepts_tensors = False

    def _discard_names(self) -> None:
        """A descriptor is only closed; a name that nobody was told of must be removed by who made it."""
        for area in self.areas:
            if area.spilled is not None and area.spilled.name:
                discard(area.spilled.name)

    def _spill(self, nbytes: int) -> None:
        segment = Segment.create(slot_bytes_for(nbytes), self._new_name() if self._new_name is not None else "")
        area = area_of(segment.view)
        area.spilled = segment
        self.areas.append(area)
