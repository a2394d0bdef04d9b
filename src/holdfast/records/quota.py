"""How much of a record one kind of line may take.

Pure. Runs in: main process.
"""

from __future__ import annotations


class Quota:
    """Counts the lines of one kind, and those that were left out."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._nbytes = 0
        self.written = 0
        self.left_out = 0

    def has_room_for(self, line: bytes) -> bool:
        return self.written < self._most and self._nbytes + len(line) <= self._most_bytes

    def count(self, line: bytes, *, is_written: bool) -> None:
        """One that could not be written, because the record has ended, is no matter of this."""
        self.written += is_written
        self._nbytes += len(line) * is_written

    def leave_out(self) -> None:
        self.left_out += 1
