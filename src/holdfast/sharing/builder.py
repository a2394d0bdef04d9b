"""Fills a new segment, from its start, with what one call of share() puts there.

Bytes are written to the file, not to a mapping: where there is no room for them, that is an error and not a signal.
Nothing is made before the first byte. Runs in: the process that shares.
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from holdfast.sharing import room
from holdfast.sharing.segment import SegmentHandle, SharedSegment, adopt

_ALIGN = 64  # a cache line: what vectorised kernels like, and more than any dtype needs
_BUFFER_BYTES = 1024 * 1024
_ASK_AGAIN_BYTES = 256 * 1024 * 1024  # how much is written before the headroom is looked at again


class Builder:
    """The segment on its way. `nbytes` have been written."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._file: Any = None
        self._room = 0  # what may be written before the headroom is looked at

    def write(self, data: Any) -> int:
        """Put bytes at the next aligned place. Returns the place."""
        self.align()
        return self.append(data)

    def align(self) -> int:
        """Make the next place an aligned one. Returns it."""
        self.append(bytes(-self.nbytes % _ALIGN))
        return self.nbytes

    def append(self, data: Any) -> int:
        """Put bytes right behind the last. Returns their place."""
        start, nbytes = self.nbytes, memoryview(data).nbytes
        if nbytes:
            self._make_room(nbytes)
            if self._file is None:
                self._file = self._open()
            with _want_of_room_explained():
                self._file.write(data)
            self.nbytes += nbytes
        return start

    def finish(self) -> SharedSegment | None:
        """The segment, mapped in this process; None if nothing was written."""
        if self._file is None:
            return None
        with _want_of_room_explained():
            self._file.flush()
            return self._finish(uuid.uuid4().hex)

    def close(self) -> None:
        """Let go of the file. What was finished has a descriptor of its own."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # no room for what was not finished
                self._file.close()

    def _make_room(self, nbytes: int) -> None:
        if nbytes > self._room:
            headroom = room.headroom_bytes()
            if headroom is not None and nbytes > headroom:
                raise room.refused(nbytes, headroom)
            self._room = max(nbytes, _ASK_AGAIN_BYTES if headroom is None else min(headroom, _ASK_AGAIN_BYTES))
        self._room -= nbytes

    if sys.platform == "win32":

        def _open(self) -> Any:
            return io.BytesIO()

        def _finish(self, id: str) -> SharedSegment:
            name = f"holdfast-{id}"
            with mmap.mmap(-1, self.nbytes, tagname=name) as shared:
                shared[:] = self._file.getbuffer()
                return adopt(SegmentHandle(id, self.nbytes, -1, name), is_ours=True)

    else:

        def _open(self) -> Any:
            return open(_new_file(), "wb", buffering=_BUFFER_BYTES)

        def _finish(self, id: str) -> SharedSegment:
            _seal(self._file.fileno())
            return adopt(SegmentHandle(id, self.nbytes, os.dup(self._file.fileno())), is_ours=True)


def _new_file() -> int:
    """A file without a name: of memory alone where there is such a thing, else a temporary one, already removed."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("holdfast-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _seal(fd: int) -> None:
    """From now on nobody can change the file, nor its size: not we, nor any process that is handed the descriptor."""
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)


@contextlib.contextmanager
def _want_of_room_explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise room.refused_by_the_system(error) from error
