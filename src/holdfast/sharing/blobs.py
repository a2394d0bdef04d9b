"""SharedBytes: bytes that many processes read in one copy.

It reads as bytes do. A slice is plain `bytes`, a copy of just that part, because that is what decoders take; the whole
without a copy is `view()`. Runs in: any process.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

from holdfast.sharing.segment import SharedSegment

_SHOWN = 32


class SharedBytes(Sequence[int]):
    """Some bytes of a segment."""

    __slots__ = ("_view", "nbytes", "segment", "start")

    def __init__(self, segment: SharedSegment, start: int, nbytes: int) -> None:
        self.segment = segment
        self.start = start
        self.nbytes = nbytes
        self._view = segment.view[start : start + nbytes]

    def view(self) -> memoryview:
        """All of it, read-only, without a copy: for `numpy.frombuffer`, `io.BytesIO`, `struct.unpack_from`."""
        return self._view

    def __buffer__(self, flags: int) -> memoryview:
        return self._view  # Python 3.12 and later: `memoryview(shared)`

    def __len__(self) -> int:
        return self.nbytes

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> bytes: ...

    def __getitem__(self, index: int | slice) -> int | bytes:
        part = self._view[index]
        return bytes(part) if isinstance(part, memoryview) else part

    def __iter__(self) -> Iterator[int]:
        return iter(self._view)

    def __bytes__(self) -> bytes:
        return bytes(self._view)

    def find(self, sub: bytes, start: int = 0) -> int:
        """The lowest place from `start` on where `sub` is found, or -1."""
        found = re.compile(re.escape(sub)).search(self._view, start)
        return -1 if found is None else found.start()

    def __contains__(self, sub: object) -> bool:
        return sub in self._view if isinstance(sub, int) else self.find(bytes(sub)) >= 0  # type: ignore[call-overload]

    def startswith(self, prefix: bytes) -> bool:
        return self[: len(prefix)] == prefix

    def endswith(self, suffix: bytes) -> bool:
        return self[max(0, len(self) - len(suffix)) :] == suffix

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self._view, encoding, errors)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedBytes):
            other = other._view
        if not isinstance(other, bytes | bytearray | memoryview):
            return NotImplemented
        return self._view == other

    def __hash__(self) -> int:
        return hash(bytes(self._view))

    def __repr__(self) -> str:
        return f"SharedBytes({reprlib.repr(self[:_SHOWN])}, {len(self)} bytes)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)
