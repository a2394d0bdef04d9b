"""SharedDict: a dict that many processes read in one copy.

It reads as a dict does, in the same order; a write is an error. Keys and values are made when they are asked for, each
time anew. Pickled to a file it is a plain dict; on its way to another process it is a handle (`handles.py`).

Runs in: any process.
"""

from __future__ import annotations

import functools
import itertools
import reprlib
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Generic, Self, TypeVar

from holdfast.sharing.items import Items
from holdfast.sharing.key_index import IndexForm, Rows, find_rows
from holdfast.sharing.refusals import refusal

K = TypeVar("K")
V = TypeVar("V")
_SHOWN = 3
_refuse = refusal("dict", "dict")


class SharedDict(Mapping[K, V], Generic[K, V]):
    """Row for row, a key and its value."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, keys: Items, values: Items, index: IndexForm | None) -> None:
        self.key_items = keys
        self.value_items = values
        self.index = index

    @functools.cached_property
    def _rows(self) -> Rows:
        return find_rows(self.key_items, self.index)

    def __len__(self) -> int:
        return len(self.key_items)

    def __getitem__(self, key: K) -> V:
        value: V = self.value_items.get(self._rows[key])
        return value

    def __contains__(self, key: object) -> bool:
        try:
            self._rows[key]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[K]:
        return map(self.key_items.get, range(len(self)))

    def __reversed__(self) -> Iterator[K]:
        return map(self.key_items.get, reversed(range(len(self))))

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def __or__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[Any, Any]) -> dict[Any, Any]:
        return {**other, **self}

    def __repr__(self) -> str:
        shown = [f"{key!r}: {reprlib.repr(value)}" for key, value in itertools.islice(self.items(), _SHOWN)]
        if len(self) > _SHOWN:
            shown.append(f"... {len(self)} entries")
        return f"SharedDict({{{', '.join(shown)}}})"

    def copy(self) -> dict[K, V]:
        """A dict of this process's own."""
        return dict(self.items())

    def __copy__(self) -> Self:
        return self  # it cannot change, and neither can what is in it

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)

    __setitem__ = __delitem__ = __ior__ = _refuse
    setdefault = update = pop = popitem = clear = _refuse


class _Values(ValuesView[V]):
    """Without looking up every key."""

    _mapping: SharedDict[Any, V]

    def __iter__(self) -> Iterator[V]:
        return map(self._mapping.value_items.get, range(len(self._mapping)))

    def __reversed__(self) -> Iterator[V]:
        return map(self._mapping.value_items.get, reversed(range(len(self._mapping))))


class _Items(ItemsView[K, V]):
    """Without looking up every key."""

    _mapping: SharedDict[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return zip(self._mapping, self._mapping.values(), strict=True)

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        return zip(reversed(self._mapping), reversed(self._mapping.values()), strict=True)  # type: ignore[call-overload]
