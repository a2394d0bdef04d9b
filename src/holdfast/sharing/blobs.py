"""SharedBytes: bytes that many processes read in one copy.

It reads as bytes do. A slice is plain `bytes`, a copy of just that part, because that is what decoders take; the whole
without a copy is `view()`. Runs in: any process.
"""

from __future__ import annotations

import codecs
import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

from holdfast.sharing.segment import SharedSegment

_SHOWN = 32
_FIRST_WITH_BYTES = 3  # of the protocols of pickle; torch.save writes 2


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

    def find(self, value: Any, start: int | None = None, stop: int | None = None) -> int:
        """The lowest place between `start` and `stop` where it is found, or -1."""
        first = next(self._matches(value, start, stop), None)
        return -1 if first is None else first.start()

    def index(self, value: Any, start: int | None = None, stop: int | None = None) -> int:
        found = self.find(value, start, stop)
        if found < 0:
            raise ValueError("subsection not found")
        return found

    def count(self, value: Any, start: int | None = None, stop: int | None = None) -> int:
        return sum(1 for _ in self._matches(value, start, stop))

    def _matches(self, value: Any, start: int | None, stop: int | None) -> Iterator[re.Match[bytes]]:
        if start is not None and start > len(self):
            return iter(())  # not even nothing is found there
        pattern = re.compile(re.escape(_sought(value)))
        return pattern.finditer(self._view, *slice(start, stop).indices(len(self))[:2])

    def __contains__(self, value: object) -> bool:
        return value in self._view if isinstance(value, int) else self.find(value) >= 0

    def startswith(self, prefix: Any) -> bool:
        return any(self[: len(part)] == part for part in _alternatives(prefix))

    def endswith(self, suffix: Any) -> bool:
        return any(self[max(0, len(self) - len(part)) :] == part for part in _alternatives(suffix))

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

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if protocol < _FIRST_WITH_BYTES:
            return codecs.encode, (self.decode("latin1"), "latin1")  # as bytes do: `torch.load` allows that call
        return bytes, (bytes(self),)

    def pin_memory(self) -> Self:
        return self  # torch asks for it, and would pin the items of a sequence one by one


def _sought(value: Any) -> bytes:
    """What bytes look for: a part, or one byte by its number."""
    if isinstance(value, SharedBytes):
        return bytes(value)
    return bytes((value,)) if isinstance(value, int) else bytes(memoryview(value))


def _alternatives(parts: Any) -> list[bytes]:
    return [_sought(part) for part in (parts if isinstance(parts, tuple) else (parts,))]
