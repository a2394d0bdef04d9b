"""How large the next batches will be, judged by the recent ones. Pure.

The largest of the last one to two windows: a single large batch is remembered long enough to matter and forgotten soon
enough not to hold memory for ever. Runs in: main process.
"""

from __future__ import annotations


class SizeForecast:
    """The largest size seen within the last `window` to `2 * window` batches."""

    __slots__ = ("_count", "_current", "_previous", "_window", "nbytes")

    def __init__(self, first_guess_bytes: int, window: int = 64) -> None:
        self._window = window
        self._previous = first_guess_bytes
        self._current = 0
        self._count = 0
        self.nbytes = first_guess_bytes

    def saw(self, nbytes: int) -> None:
        self._current = max(self._current, nbytes)
        self.nbytes = max(self.nbytes, nbytes)
        self._count += 1
        if self._count == self._window:
            self._previous, self._current, self._count = self._current, 0, 0
            self.nbytes = self._previous
