"""A segment: one memfd, mapped once, never resized.

A memfd is not bound by the size of /dev/shm and leaves no name behind, whatever is killed. Only touched pages take
memory, so a segment may be generous: its length is address space, not memory. Growing means adding a segment, so a
mapping never moves under a live tensor.

Runs in: main | worker process.
"""

from __future__ import annotations

import mmap
import os

PAGE = mmap.PAGESIZE
_SMALLEST_SLOT = 256 * 1024
_CLASS_FACTOR = 4


def slot_bytes_for(nbytes: int) -> int:
    """The size class that holds `nbytes`. Few classes, so that few descriptors serve batches of any size."""
    size = _SMALLEST_SLOT
    while size < nbytes:
        size *= _CLASS_FACTOR
    return size


class Mapping(mmap.mmap):
    """A mapping that can keep its owner alive for as long as anyone holds a view of it."""

    owner: object = None


class Segment:
    """One memfd and its mapping. The mapping lives until the last view of it is gone, also after `close_fd()`."""

    __slots__ = ("_mapping", "fd", "nbytes", "view")

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._mapping = Mapping(fd, nbytes, mmap.MAP_SHARED)
        self.view = memoryview(self._mapping)

    @classmethod
    def create(cls, nbytes: int) -> Segment:
        fd = os.memfd_create("holdfast", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            return cls(fd, nbytes)
        except BaseException:
            os.close(fd)
            raise

    def give_back(self, start: int, stop: int) -> None:
        """Return the memory of the whole pages inside [start, stop) to the system; they read as zeros afterwards."""
        start = -(-start // PAGE) * PAGE
        stop = stop // PAGE * PAGE
        if start < stop:
            self._mapping.madvise(mmap.MADV_REMOVE, start, stop - start)

    def close_fd(self) -> None:
        """Close the descriptor; mapping and views stay valid."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def retire(self, owner: object) -> None:
        """No more views will be taken. Those that are out keep the mapping, and with it `owner`, alive."""
        self.close_fd()
        self._mapping.owner = owner
        self.view = memoryview(b"")
