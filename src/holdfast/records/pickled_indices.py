"""Which index is at a place of a pickled list of indices, without unpickling it.

To unpickle is to run whatever the pickle says. Here it is only read: whole numbers and texts, in a list or alone, as
samplers give them. Anything else has no answer. The pickle may be cut off: what is before the cut is good.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

import pickletools
from typing import Any

_LONGEST_TEXT = 200
_LARGEST = 1 << 63
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "NONE", "SHORT_BINUNICODE", "BINUNICODE"}
_RECALLED = {"BINGET", "LONG_BINGET"}
_BEGINNING = {"PROTO", "FRAME", "EMPTY_LIST", "MARK"}
_END = {"APPEND", "APPENDS", "STOP"}
_KNOWN = _VALUES | _RECALLED | _BEGINNING | _END | {"MEMOIZE"}


def sample_at(pickled: bytes, position: int) -> int | str | None:
    """The index at a position; None where there is none, or it is of another kind."""
    if position < 0:
        return None
    indices = _indices(pickled)
    index = indices[position] if position < len(indices) else None
    if isinstance(index, str):
        return index[:_LONGEST_TEXT]
    return index if isinstance(index, int) and -_LARGEST <= index < _LARGEST else None


def _indices(pickled: bytes) -> list[Any]:
    """All of them; nothing, if there is anything among them that is neither a number nor a text."""
    found: list[Any] = []
    remembered: list[Any] = []
    lists = 0
    try:
        for opcode, value, _ in pickletools.genops(pickled):
            lists += opcode.name == "EMPTY_LIST"
            if lists > 1 or opcode.name not in _KNOWN or (opcode.name in _BEGINNING and found):
                return []
            if opcode.name in _VALUES:
                found.append(value)
            elif opcode.name in _RECALLED:
                found.append(remembered[value])  # type: ignore[index]
            elif opcode.name == "MEMOIZE":
                remembered.append(found[-1] if found else None)
            elif opcode.name in _END:
                return found
    except Exception:  # cut off, or no pickle at all: whatever it is, it was only read
        return found[:-1]  # (the last one may be a part of something)
    return found
