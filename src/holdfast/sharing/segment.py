"""A shared segment: memory that is written once, and from then on read by any number of processes.

    share() ──Builder──► memfd, sealed ◄──one private mapping per process── arrays, tensors, lists of that process
                           └ its handle (id, size, descriptor) is what travels, under any start method

What must hold:
- A process maps a segment once, however many things in it arrive, and has one descriptor of it, to send it on.
- Mapping and descriptor go with the last array, tensor or list that looks at them. With the last process the memory
  goes, whatever was killed: it has no name. (Windows has no descriptors: there it has one, which goes as well.)
- Nobody can change it for others: the file is sealed, and every mapping private. What a process writes, through a
  tensor or in native code, it alone sees; such bytes are never sent as a handle (`was_written`).

Runs in: any process.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.errors import SharedMemoryError
from holdfast.transport.segments import PAGE, map_memory, see_all_pages

Array = np.ndarray[Any, Any]
_COMPARED_BYTES = 1024 * 1024
_MOST_TO_A_FORK_SERVER = 240  # it takes 256 descriptors with a process, of which some are not ours


class SegmentHandle:
    """What travels. Pickled on its way to another process, it arrives there as a `SharedSegment`."""

    __slots__ = ("fd", "id", "name", "nbytes")

    def __init__(self, id: str, nbytes: int, fd: int, name: str = "") -> None:
        self.id = id
        self.nbytes = nbytes
        self.fd = fd
        self.name = name  # where there are no descriptors

    def __reduce__(self) -> tuple[Any, ...]:
        return open_segment, (self.id, self.nbytes, self.name or _passed(self.fd))


class SharedSegment:
    """The segment as this process sees it. Every view of its memory keeps the mapping, with or without this object."""

    __slots__ = ("bytes", "handle", "view", "writable")

    def __init__(self, memory: Any) -> None:
        self.handle: SegmentHandle = memory.handle
        self.writable = memoryview(memory).cast("B")  # of this process alone
        self.view = self.writable.toreadonly()
        self.bytes: Array = np.frombuffer(self.view, np.uint8)  # an array on it can never be made writable


class Place(NamedTuple):
    """Where some memory of this process lies in a segment."""

    handle: SegmentHandle
    start: int


_memories: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # all that is mapped here, by id


def open_segment(id: str, nbytes: int, passed: Any) -> SharedSegment:
    """The segment whose handle arrived. It is mapped only if it is not yet."""
    fd, name = (-1, passed) if isinstance(passed, str) else (passed.detach(), "")
    memory = _memories.get(id)
    if memory is None:
        return adopt(SegmentHandle(id, nbytes, fd, name))
    if fd not in (-1, memory.handle.fd):
        os.close(fd)
    return SharedSegment(memory)


def adopt(handle: SegmentHandle, *, is_ours: bool = False) -> SharedSegment:
    """Map a segment that is new here, or was made here. Its descriptor belongs to the mapping from now on."""
    if handle.fd >= 0:
        _check(handle)  # (what is something else is not ours to close)
        os.set_inheritable(handle.fd, False)
    try:
        memory = map_memory(handle.fd, handle.name, handle.nbytes, is_private=True)
    except OSError:
        with contextlib.suppress(OSError):
            os.close(handle.fd)
        raise
    if is_ours:
        see_all_pages(memory)  # what a worker then looks at is shared memory to whoever measures it
    memory.handle = handle
    if handle.fd >= 0:
        weakref.finalize(memory, os.close, handle.fd).atexit = False
    segment = SharedSegment(memory)
    memory.address = address_of(segment.bytes)
    _memories[handle.id] = memory
    return segment


def _check(handle: SegmentHandle) -> None:
    """A descriptor that is not what it was sent as must not be read: past the end of a file that is a SIGBUS."""
    try:
        size = os.fstat(handle.fd).st_size
    except OSError:
        size = -1  # closed meanwhile
    if size < handle.nbytes:
        raise SharedMemoryError(
            f"descriptor {handle.fd} is not the shared segment that was sent ({handle.nbytes} bytes)\n"
            f"  try   load what was sent once only, in the process that it was sent to"
        )


def _passed(fd: int) -> Any:
    """The descriptor on its way: inherited by a process that is being started, else fetched by who receives it."""
    popen: Any = get_spawning_popen()
    if popen is not None and popen.method == "spawn" and fd in popen._fds:
        return popen.DupFd(fd)  # named twice, it could not be inherited at all
    if popen is not None and popen.method == "forkserver" and len(popen._fds) >= _MOST_TO_A_FORK_SERVER:
        raise SharedMemoryError(
            f"more than {_MOST_TO_A_FORK_SERVER} shared segments cannot be sent through Python's fork server\n"
            f"  try   share them in one call, as a tuple or a dict: one segment serves for all that is in it"
        )
    return reduction.DupFd(fd)


# -- memory that lies in a segment -------------------------------------------------------------------------------------


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def is_in_a_segment(address: int, nbytes: int) -> bool:
    return _memory_at(address, nbytes) is not None


def locate(address: int, nbytes: int) -> Place | None:
    """The place of some memory of this process, if it lies in a segment and is still as it was shared."""
    memory = _memory_at(address, nbytes)
    if memory is None or was_written(memory, address, nbytes):
        return None
    return Place(memory.handle, address - memory.address)


def _memory_at(address: int, nbytes: int) -> Any:
    for memory in list(_memories.values()):
        if memory.address <= address and address + nbytes <= memory.address + memory.handle.nbytes:
            return memory
    return None


def was_written(memory: Any, address: int, nbytes: int) -> bool:
    """Whether this process has changed any of these bytes for itself.

    Who sends a tensor on sends what it holds. The kernel knows which pages are no longer the file's. What is in them
    may still be: the first and the last page are often a neighbour's as well.
    """
    start, end = address - memory.address, address - memory.address + nbytes
    try:
        pages = _own_pages(address, nbytes)
    except (OSError, ValueError):  # not Linux, or no /proc
        return _differs(memory, start, nbytes)
    for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1) if len(pages) else ():
        first = max(start, int(run[0]) * PAGE - memory.address)
        after = min(end, (int(run[-1]) + 1) * PAGE - memory.address)
        if _differs(memory, first, after - first):
            return True
    return False


def _own_pages(address: int, nbytes: int) -> Array:
    """The numbers of the pages that are this process's own."""
    first, end = address // PAGE, -(-(address + nbytes) // PAGE)
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        entries = np.frombuffer(os.pread(file.fileno(), 8 * (end - first), 8 * first), np.uint64)
    if len(entries) != end - first:
        raise ValueError("not every page was told of")
    is_there = entries >> np.uint64(62) != 0  # in memory, or swapped out
    is_of_the_file = entries >> np.uint64(61) & np.uint64(1) != 0
    return first + np.flatnonzero(is_there & ~is_of_the_file)


def _differs(memory: Any, start: int, nbytes: int) -> bool:
    if memory.handle.fd < 0:
        return True
    view = memoryview(memory).cast("B")
    for at in range(start, start + nbytes, _COMPARED_BYTES):
        count = min(_COMPARED_BYTES, start + nbytes - at)
        if os.pread(memory.handle.fd, count, at) != view[at : at + count]:
            return True
    return False
