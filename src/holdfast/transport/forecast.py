"""How large the next batches will be, judged by the recent ones. Pure.

The largest of the last one to two windows: a single large batch is remembered long enough to matter and forgotten soon
enough not to hold memory for ever. Runs in: main process.
"""

from __future__ import annotations


class SizeForecast:
    """The largest size seen within the last `window` to `2 * window` batches."""

    __slots__ = ("_count", "_largest", "_window", "nbytes")

    def __init__(self, first_guess_bytes: int, window: int = 64) -> None:
        self._window = window
        self._count = 0  # batches in the current window
        self._largest = 0  # of them
        self.nbytes = first_guess_bytes

    def saw(self, nbytes: int) -> bool:
        """Take a batch into account. True when less is expected from now on than before."""
        self._largest = max(self._largest, nbytes)
        self.nbytes = max(self.nbytes, nbytes)
        self._count += 1
        if self._count < self._window:
            return False
        before, self.nbytes = self.nbytes, self._largest
        self._count, self._largest = 0, 0
        return self.nbytes < before
