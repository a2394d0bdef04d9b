"""A segment: shared memory, mapped once, never resized.

It is known to other processes by a handle: the descriptor of a memfd where descriptors can be handed over, else a name
(`names.py`). A memfd is not bound by the size of /dev/shm and leaves no name behind, whatever is killed. Only touched
pages take memory, so a segment may be generous: its length is address space, not memory. Growing means adding a
segment, so a mapping never moves under a live tensor.

Runs in: main | worker process.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from holdfast.transport import names

Handle = int | str  # a descriptor, or a name
PAGE = mmap.PAGESIZE
_SMALLEST_SLOT = 256 * 1024
_CLASS_FACTOR = 4


def slot_bytes_for(nbytes: int) -> int:
    """The size class that holds `nbytes`. Few classes, so that few descriptors serve batches of any size."""
    size = _SMALLEST_SLOT
    while size < nbytes:
        size *= _CLASS_FACTOR
    return size


def discard(handle: Handle) -> None:
    """Let go of a segment that was sent here and will not be opened."""
    if isinstance(handle, int):
        os.close(handle)
    else:
        names.remove(handle)


if sys.platform == "win32":

    class _Mapping(mmap.mmap):
        owner: object = None

    def map_memory(fd: int, name: str, nbytes: int, *, is_private: bool = False) -> Any:
        return _Mapping(-1, nbytes, tagname=name, access=mmap.ACCESS_COPY if is_private else mmap.ACCESS_DEFAULT)

    def _give_back(memory: Any, start: int, stop: int) -> None:
        """Not possible here: the memory is given back with the last mapping."""

    def see_all_pages(memory: Any) -> None:
        """Nothing to be done: nobody counts here."""

    def map_pages(address: int, nbytes: int) -> None:
        """Not possible here: they are mapped as they are written to."""

    def _before_unmap(memory: Any, call: Callable[[], bool]) -> None:
        memory.last_words = weakref.finalize(memory, call)

    def _address_of(memory: Any) -> int:
        return ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))

else:
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _MAP_FAILED = ctypes.c_void_p(-1).value
    _MADV_REMOVE: int | None = getattr(mmap, "MADV_REMOVE", None)  # Linux
    _MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23  # Linux 5.14

    def map_memory(fd: int, name: str, nbytes: int, *, is_private: bool = False) -> Any:
        """Map a file for as long as anyone holds a buffer of the result. Private: writes stay in this process.

        Python's own mmap keeps a duplicate of the descriptor for as long (before 3.13 one cannot tell it not to), and a
        user may keep batches of any number of epochs.
        """
        visibility = mmap.MAP_PRIVATE if is_private else mmap.MAP_SHARED
        address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, visibility, fd, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), f"cannot map {nbytes} bytes: {os.strerror(ctypes.get_errno())}")
        memory = (ctypes.c_ubyte * nbytes).from_address(address)
        # not at exit: tensors may still be in use then, and the kernel does it anyway
        memory.mapping = mapping = weakref.finalize(memory, _unmap, address, nbytes)  # type: ignore[attr-defined]
        mapping.atexit = False
        return memory

    _last_words: dict[int, Callable[[], bool]] = {}  # by address: what is to be done before unmapping

    _postponed: deque[tuple[int, int]] = deque()  # address, length: what could not be unmapped when it was to be

    def _unmap(address: int, nbytes: int) -> None:
        last_words = _last_words.get(address)
        if last_words is not None and not last_words():
            _postponed.append((address, nbytes))
            return
        _last_words.pop(address, None)
        _libc.munmap(address, nbytes)
        if _postponed:
            with contextlib.suppress(IndexError):  # another thread was faster
                _unmap(*_postponed.popleft())

    def _before_unmap(memory: Any, call: Callable[[], bool]) -> None:
        _last_words[ctypes.addressof(memory)] = call

    def _address_of(memory: Any) -> int:
        return ctypes.addressof(memory)

    def _give_back(memory: Any, start: int, stop: int) -> None:
        # (the collector unmaps before it has an iterator in the same cycle close its pool)
        if _MADV_REMOVE is not None and memory.mapping.alive:
            _libc.madvise(ctypes.addressof(memory) + start, stop - start, _MADV_REMOVE)

    def see_all_pages(memory: Any) -> None:
        """Have the kernel know that this process sees every page of a mapping, where it can be told.

        It counts a page that one process alone has looked at as that process's own, as if it were private memory.
        """
        if sys.platform == "linux":
            _libc.madvise(ctypes.addressof(memory), ctypes.sizeof(memory), _MADV_POPULATE_READ)

    def map_pages(address: int, nbytes: int) -> None:
        """Map what is about to be written to, all at once: a fault for each page costs several times as much.

        Where that is refused, the faults come, and with them whatever was the reason.
        """
        if sys.platform == "linux":
            start = address // PAGE * PAGE
            _libc.madvise(start, address + nbytes - start, _MADV_POPULATE_WRITE)


class Segment:
    """Shared memory and its mapping. The mapping lives until the last view of it is gone, also after `close_fd()`."""

    __slots__ = ("_memory", "fd", "name", "nbytes", "view")

    def __init__(self, handle: Handle, nbytes: int) -> None:
        self.name = handle if isinstance(handle, str) else ""
        self.fd = names.open_fd(handle) if isinstance(handle, str) else handle
        self.nbytes = nbytes
        try:
            self._memory = map_memory(self.fd, self.name, nbytes)
        except BaseException:
            if self.name:
                self.close_fd()
            raise
        self.view = memoryview(self._memory).cast("B")

    @classmethod
    def create(cls, nbytes: int, name: str = "") -> Self:
        """New memory: with a name that others can open it by, else as a memfd."""
        handle: Handle = name
        if name:
            names.create(name, nbytes)
        else:
            handle = os.memfd_create("holdfast", os.MFD_CLOEXEC)
        try:
            if isinstance(handle, int):
                os.ftruncate(handle, nbytes)
            return cls(handle, nbytes)
        except BaseException:
            discard(handle)
            raise

    def give_back(self, start: int, stop: int) -> None:
        """Return the memory of the whole pages inside [start, stop) to the system; they read as zeros afterwards."""
        start = -(-start // PAGE) * PAGE
        stop = stop // PAGE * PAGE
        if start < stop:
            _give_back(self._memory, start, stop)

    @property
    def memory(self) -> object:
        """What keeps the mapping."""
        return self._memory

    @property
    def address(self) -> int:
        return _address_of(self._memory)

    def before_unmap(self, call: Callable[[], bool]) -> None:
        """Have `call`, which must not hold this segment, called before the mapping goes.

        If that returns False the mapping stays, and it is asked again when another one goes.
        """
        _before_unmap(self._memory, call)

    def close_fd(self) -> None:
        """Close the descriptor; mapping and views stay valid."""
        fd, self.fd = self.fd, -1  # first: a signal handler that raises in between must not have it closed twice
        if fd >= 0:
            os.close(fd)

    def retire(self, owner: object) -> None:
        """No more views will be taken. Those that are out keep the mapping, and with it `owner`, alive."""
        self.close_fd()
        self._memory.owner = owner
        self.view = memoryview(b"")
