"""A file that one process appends lines to, each by one write: what was written survives the death of the process.

- Not buffered: after `append` the kernel has the line, and `kill -9` of everything does not take it back.
- Written only by the process that made it. A forked child has its copy of the descriptor closed, so that neither its
  writes nor its life, which would keep the lock, are taken for those of its parent.
- Made anew, never opened when it exists, and readable by its owner only.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import weakref
from pathlib import Path
from typing import Self

from holdfast.records import liveness

_FLAGS = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)  # Windows: the end of a line is one byte
)


class LineFile:
    """The writing end of a file of lines."""

    def __init__(self, fd: int, path: Path) -> None:
        self.path = path
        self._fd: int | None = fd
        self._pid = os.getpid()
        self._file = _identity(fd)
        self._finalizer = weakref.finalize(self, _close, fd, self._pid, self._file)

    @classmethod
    def create(cls, path: Path) -> Self:
        """FileExistsError if there is anything of that name, were it a link that leads nowhere."""
        _forget_in_children()
        fd = os.open(path, _FLAGS, 0o600)
        file = cls(fd, path)
        _open_files.add(file)
        if hasattr(os, "fchmod"):
            os.fchmod(fd, 0o600)  # whatever the umask took away
        liveness.hold(fd)
        return file

    def append(self, line: bytes) -> None:
        """Write a line; OSError if it could not be written whole."""
        if self._fd is None or not self.is_ours:
            raise OSError(errno.EBADF, "This file is not open in this process", str(self.path))
        if _identity(self._fd) != self._file:  # somebody closed all descriptors, as daemons do: it is another file now
            raise OSError(errno.EBADF, "Its descriptor was closed by other code", str(self.path))
        written = os.write(self._fd, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    @property
    def is_ours(self) -> bool:
        """Whether this process made it."""
        return os.getpid() == self._pid

    def close(self) -> None:
        """Lets the lock go, too. Also in a child, where it closes the child's copy and leaves the parent's alone."""
        fd, self._fd = self._fd, None
        if fd is not None:
            self._finalizer.detach()
            _close(fd, os.getpid(), self._file)


_open_files: weakref.WeakSet[LineFile] = weakref.WeakSet()


@functools.cache
def _forget_in_children() -> None:
    """From the first file on, and not from the import on, which has no effects."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    for file in list(_open_files):
        file.close()


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _close(fd: int, pid: int, file: tuple[int, int]) -> None:
    """Close a descriptor if it is still the one that was opened, in the process that it belongs to."""
    with contextlib.suppress(OSError):
        if os.getpid() == pid and _identity(fd) == file:
            os.close(fd)
