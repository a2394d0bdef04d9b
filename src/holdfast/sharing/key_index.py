"""Finds a key among the items of a segment, through an index that lies in the same segment.

    bucket = hash of the key ──► firsts[bucket] .. firsts[bucket + 1] ──► rows: the items whose keys are in that bucket

The hash is the same in every process, which Python's own is not for text. Keys for which there is none (objects with a
`__hash__` of their own) are found through a plain dict, which each process makes for itself on first use.

Runs in: the process that shares (write_index), any process (find_rows).
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast.sharing.builder import Builder
from holdfast.sharing.items import Items
from holdfast.sharing.runs import Run, read_run, write_integers

_MIX, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # spreads numbers that are alike, such as multiples of 4096
_SIMPLE = frozenset((str, bytes, bool, int, float, complex, type(None)))


class IndexForm(NamedTuple):
    """An index in a segment."""

    firsts: Run
    rows: Run


class Rows(Protocol):
    """Where keys are: raises KeyError for one that is not there."""

    def __getitem__(self, key: Any, /) -> int: ...


def stable_hash(key: Any) -> int:
    """The same in every process, and for equal keys, of the types that `_has_stable_hash` allows."""
    if isinstance(key, str):
        return zlib.crc32(str.encode(key, "utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return zlib.crc32(key)
    if isinstance(key, tuple):
        mixed = len(key)
        for part in key:
            mixed = mixed * _MIX + stable_hash(part) & _MASK
        return mixed >> 32
    # Python's own: of numbers it is the same everywhere, also of those of other libraries; of None only since 3.12
    return 0 if key is None else (hash(key) * _MIX & _MASK) >> 32


def _has_stable_hash(key: Any) -> bool:
    return type(key) in _SIMPLE or (type(key) is tuple and all(map(_has_stable_hash, key)))


def write_index(keys: list[Any], builder: Builder) -> IndexForm | None:
    """Make the index; None if there are keys without a stable hash."""
    if not all(map(_has_stable_hash, keys)):
        return None
    count = 1 << len(keys).bit_length()
    buckets = np.fromiter(map(stable_hash, keys), np.int64, len(keys)) & (count - 1)
    firsts = np.concatenate(([0], np.cumsum(np.bincount(buckets, minlength=count))))
    return IndexForm(write_integers(firsts, builder), write_integers(np.argsort(buckets, kind="stable"), builder))


def find_rows(keys: Items, form: IndexForm | None) -> Rows:
    """What finds the row of a key."""
    if form is None:
        return {keys.get(row): row for row in range(len(keys))}
    return _IndexedRows(keys, form)


class _IndexedRows:
    __slots__ = ("_firsts", "_get_key", "_mask", "_rows")

    def __init__(self, keys: Items, form: IndexForm) -> None:
        self._firsts, self._rows = read_run(keys.segment, form.firsts), read_run(keys.segment, form.rows)
        self._mask = form.firsts.length - 2
        self._get_key = keys.get

    def __getitem__(self, key: Any) -> int:
        hash(key)  # what cannot be a key is an error, as with a dict
        bucket = stable_hash(key) & self._mask
        for row in self._rows[self._firsts[bucket] : self._firsts[bucket + 1]]:
            if self._get_key(row) == key:
                return row
        raise KeyError(key)
