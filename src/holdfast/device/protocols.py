"""What pinned slots need of a driver. CUDA's side of it is in `cuda.py`; tests bring their own.

Runs in: main process.
"""

from __future__ import annotations

from typing import Protocol


class Registrar(Protocol):
    """Makes memory known to the driver, so that the device reads it directly: it is pinned from then on."""

    def enter_thread(self) -> None:
        """Called once in the thread that registers."""

    def register(self, address: int, nbytes: int) -> str:
        """Pin these bytes. Returns why that was refused, or nothing if it was done."""

    def unregister(self, address: int) -> None:
        """Undo what `register` did. Nothing may be reading the memory any more."""


class Fence(Protocol):
    """A moment on one or more streams: passed when all that was asked of them before it is done."""

    def passed(self) -> bool: ...

    def wait(self, timeout_s: float) -> bool:
        """Until it has passed. False if it did not in that time."""


class Streams(Protocol):
    """The streams on which the user may have asked for copies of batches."""

    def note(self) -> None:
        """Called in the user's thread: the streams that are current there are used from now on."""

    def fence(self) -> Fence:
        """After everything that was asked of these streams so far."""

    def may_wait(self) -> bool:
        """False where nothing may be asked of the device now: the user is capturing a graph."""
