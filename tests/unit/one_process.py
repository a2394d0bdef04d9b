"""The transport in one process: what a worker does and what the main process does, one after the other.

Also readings of what it costs: the memory and the descriptors of our memfds. Runs in: the test process.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

from holdfast.transport import layout
from holdfast.transport.segments import PAGE
from holdfast.transport.slots import Slot, SlotPool
from holdfast.transport.writer import Area, SlotWriter, area_of

FIRST_GUESS = 1 << 20
"""What a pool expects of the first batches, in bytes."""


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
    fds = [os.dup(fd) for fd in writer.spilled_fds()]
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


# --- what it costs ------------------------------------------------------------------------------------------------


_of_others: set[int] = set()


def count_from_here() -> None:
    """What there is now, such as what the traceback of a failed test holds, counts no more."""
    gc.collect()
    _of_others.clear()
    _of_others.update(status.st_ino for status in memfds())


def memfds() -> list[os.stat_result]:
    """One entry per descriptor of a segment that this process has open, those inside mappings as well."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            if str(link.readlink()).startswith("/memfd:holdfast ") and link.stat().st_ino not in _of_others:
                found.append(link.stat())
        except FileNotFoundError:  # the descriptor of this very listing
            continue
    return found


def memfd_bytes() -> int:
    """The memory of all segments, each counted once."""
    return sum({status.st_ino: status.st_blocks * 512 for status in memfds()}.values())


def pages(nbytes: int) -> int:
    """Bytes rounded up to whole pages."""
    return -(-nbytes // PAGE) * PAGE
