"""A sequence of Python objects in one buffer: any of them can be had without the others.

    numbers      int, float or bool alone: as an array, of the narrowest type that holds them
    texts        str or bytes alone: all of them in one piece, and where each begins
    pickles      anything else (`pickles.py`)

Asking for an item makes a new object. So nothing in the buffer has a reference count, and reading it writes nothing:
forked processes share the pages for good. Runs in: the process that shares (pack), any process (the rest).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from holdfast.sharing import pickles
from holdfast.sharing.builder import Builder
from holdfast.sharing.runs import ItemsForm, Kind, Run, read_run, write_integers, write_run
from holdfast.sharing.segment import SharedSegment

_CHUNK = 65536  # items that are encoded at once
_INTEGERS = ("b", "h", "i", "q")


class Items:
    """The items as this process sees them. `get` takes a number from 0 to len() - 1."""

    __slots__ = ("form", "get", "segment")

    def __init__(self, segment: SharedSegment, form: ItemsForm) -> None:
        self.segment = segment
        self.form = form
        self.get: Callable[[int], Any] = _getter(segment, form)

    def __len__(self) -> int:
        return self.form.length


def pack(items: list[Any], builder: Builder, name_of: Callable[[int], str]) -> ItemsForm:
    """Put items into a segment. `name_of` says what the user knows one as, for errors."""
    if not items:
        builder.append(b"\0")  # what is shared has a segment, however little is in it
    types = set(map(type, items))
    only = types.pop() if len(types) == 1 else None
    code = _number_code(items, only)
    if code is not None:
        return ItemsForm(Kind.NUMBERS, len(items), (write_run(array(code, items), code, builder),))
    if only is bool:
        return ItemsForm(Kind.NUMBERS, len(items), (write_run(bytes(items), "?", builder),))
    if only is str:
        return _pack_texts(Kind.STR, items, _encoded, builder)
    if only is bytes:
        return _pack_texts(Kind.BYTES, items, bytes, builder)
    return pickles.pack(items, builder, name_of)


def _number_code(items: list[Any], only: type | None) -> str | None:
    if only is float:
        return "d"
    if only is not int:
        return None
    low, high = min(items), max(items)
    for code in _INTEGERS:
        bits = 8 * array(code).itemsize - 1
        if -(1 << bits) <= low and high < 1 << bits:
            return code
    return None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # os.fsdecode makes such, of file names that are not UTF-8


def _pack_texts(kind: Kind, texts: list[Any], encode: Callable[[Any], bytes], builder: Builder) -> ItemsForm:
    start = builder.align()
    starts = np.zeros(len(texts) + 1, np.uint64)
    for at, encoded in _encoded_chunks(texts, encode):
        starts[at + 1 : at + 1 + len(encoded)] = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        builder.append(b"".join(encoded))
    np.cumsum(starts, out=starts)
    whole = Run(start, int(starts[-1]), "B")
    return ItemsForm(kind, len(texts), (whole, write_integers(starts, builder)))


def _encoded_chunks(texts: list[Any], encode: Callable[[Any], bytes]) -> Iterator[tuple[int, list[bytes]]]:
    for at in range(0, len(texts), _CHUNK):
        yield at, list(map(encode, texts[at : at + _CHUNK]))


# -- reading -----------------------------------------------------------------------------------------------------------
# Closures, not methods: an item is asked for millions of times.


def _getter(segment: SharedSegment, form: ItemsForm) -> Callable[[int], Any]:
    runs = [read_run(segment, run) for run in form.runs]
    if form.kind is Kind.NUMBERS:
        return runs[0].__getitem__
    if form.kind is Kind.STR:
        return _str_getter(*runs)
    if form.kind is Kind.BYTES:
        return _bytes_getter(*runs)
    return pickles.getter(segment, runs)


def _str_getter(whole: memoryview, starts: memoryview) -> Callable[[int], str]:
    def get(row: int) -> str:
        return str(whole[starts[row] : starts[row + 1]], "utf-8", "surrogatepass")

    return get


def _bytes_getter(whole: memoryview, starts: memoryview) -> Callable[[int], bytes]:
    def get(row: int) -> bytes:
        return bytes(whole[starts[row] : starts[row + 1]])

    return get
