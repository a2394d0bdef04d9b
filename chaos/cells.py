"""Three numbers that the training loop and the killer share: memory, so that the loop pays nothing for it.

Runs in: main, killer.
"""

from __future__ import annotations

import mmap
import os

_DELIVERED, _KILLS, _ARMED = range(3)


class Cells:
    """`delivered` and `armed` are written by the training loop, `kills` by the killer."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._cells = memoryview(mmap.mmap(fd, mmap.PAGESIZE)).cast("q")

    @classmethod
    def create(cls) -> Cells:
        """New cells, all 0, in memory without a name."""
        fd = os.memfd_create("chaos", os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        return cls(fd)

    @property
    def delivered(self) -> int:
        """Batches delivered so far; it goes up at other signs of life, too."""
        return self._cells[_DELIVERED]

    def progressed(self) -> None:
        """The training loop has got on."""
        self._cells[_DELIVERED] += 1

    @property
    def kills(self) -> int:
        """How many signals were sent so far."""
        return self._cells[_KILLS]

    def killed(self) -> None:
        """One more was sent."""
        self._cells[_KILLS] += 1

    @property
    def is_armed(self) -> bool:
        """Whether the killer may kill."""
        return bool(self._cells[_ARMED])

    def arm(self, armed: bool) -> None:
        """Allow or forbid kills."""
        self._cells[_ARMED] = int(armed)

    def close(self) -> None:
        """Let go of the descriptor; the memory goes with the object."""
        os.close(self.fd)
