"""The transport in one process: what a worker does and what the main process does, one after the other.

Runs in: the test process.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast.transport import layout
from holdfast.transport.slots import Slot, SlotPool
from holdfast.transport.writer import Area, SlotWriter, area_of


def area(slot: Slot) -> Area:
    """The slot as a worker has it mapped."""
    return area_of(slot.peek(0, slot.nbytes))


def begun(slot: Slot) -> SlotWriter:
    """A writer with the slot as the place of the unit in hand."""
    writer = SlotWriter()
    writer.begin(area(slot))
    return writer


def adopted(writer: SlotWriter, pool: SlotPool) -> list[Slot]:
    """What a worker spilled, as the main process has it: its descriptors travelled, so they are other ones."""
    fds = [os.dup(fd) for fd in writer.spilled_handles()]
    return [pool.adopt(fd, nbytes) for fd, nbytes in zip(fds, writer.spilled_bytes(), strict=True)]


def receive(packed: Any, writer: SlotWriter, slot: Slot, pool: SlotPool) -> Any:
    """The main process's part: adopt what was spilled, rebuild the batch, let its views decide."""
    areas = [slot, *adopted(writer, pool)]
    for one, used in zip(areas, writer.used_bytes(), strict=True):
        one.touched = max(one.touched, used)
    writer.end()
    try:
        return layout.decode(packed, areas, pool)
    finally:
        for one in areas:
            pool.delivered(one)


def travel(batch: object, pool: SlotPool) -> Any:
    """A batch from a worker to the user."""
    slot = pool.acquire()
    writer = begun(slot)
    return receive(layout.encode(batch, writer), writer, slot, pool)
