"""The transport in one process: what a worker does and what the main process does, one after the other.

Also readings of what it costs: the memory and the descriptors of our memfds. Runs in: the test process.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
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


# --- what it costs ------------------------------------------------------------------------------------------------


_NAME = "/memfd:holdfast (deleted)"
_MAPPING = re.compile(r"^([0-9a-f]+-[0-9a-f]+) \S+ \S+ \S+ (\d+) +(.*)$")
_of_others: set[int] = set()


def count_from_here() -> None:
    """What there is now, such as what the traceback of a failed test holds, counts no more."""
    _of_others.clear()
    _of_others.update(segments())


def segments() -> dict[int, int]:
    """Every segment that this process has open or mapped, by inode, and the bytes of memory it takes."""
    opened = {status.st_ino: status.st_blocks * 512 for status in _descriptors()}
    mapped = {inode: _mapped_bytes(addresses) for inode, addresses in _mappings() if inode not in opened}
    return {inode: nbytes for inode, nbytes in (opened | mapped).items() if inode not in _of_others}


def descriptors() -> int:
    """How many descriptors our segments take."""
    return sum(status.st_ino not in _of_others for status in _descriptors())


def memory_in_use() -> int:
    """The bytes of memory that all segments take together."""
    return sum(segments().values())


def _descriptors() -> Iterator[os.stat_result]:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this very listing
            if str(link.readlink()) == _NAME:
                yield link.stat()


def _mappings() -> Iterator[tuple[int, str]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = _MAPPING.match(line) if line.endswith(_NAME) else None
        if found is not None:
            yield int(found[2]), found[1]


def _mapped_bytes(addresses: str) -> int:
    """Of a file that is mapped and not open: from the kernel where we may ask (root), else what is resident here."""
    try:
        return Path("/proc/self/map_files", addresses).stat().st_blocks * 512
    except PermissionError:
        part = Path("/proc/self/smaps").read_text().partition(addresses)[2]
        resident = re.search(r"^Rss: +(\d+) kB$", part, re.MULTILINE)
        assert resident is not None
        return int(resident[1]) * 1024


def pages(nbytes: int) -> int:
    """Bytes rounded up to whole pages."""
    return -(-nbytes // PAGE) * PAGE
