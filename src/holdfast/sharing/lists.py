"""SharedList: a list that many processes read in one copy.

It reads as a list does; a slice is a view that costs nothing; a write is an error. Its items are made when they are
asked for, each time anew. Pickled to a file it is a plain list; on its way to another process it is a handle
(`handles.py`). Runs in: any process.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from holdfast.sharing.items import Items
from holdfast.sharing.refusals import refusal

T = TypeVar("T")
_SHOWN = 3
_refuse = refusal("list", "list")


class SharedList(Sequence[T], Generic[T]):
    """The items with the numbers `rows`."""

    __slots__ = ("_get", "rows", "source")
    __hash__ = None  # type: ignore[assignment]  # as a list: two that are equal may be of different types

    def __init__(self, items: Items, rows: range) -> None:
        self.source = items
        self.rows = rows
        self._get = items.get

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> T | Self:
        try:
            row = self.rows[index]
        except IndexError:
            raise IndexError("list index out of range") from None
        except TypeError:
            raise TypeError(f"list indices must be integers or slices, not {type(index).__name__}") from None
        if isinstance(row, range):
            return type(self)(self.source, row)
        item: T = self._get(row)
        return item

    def __iter__(self) -> Iterator[T]:
        return map(self._get, self.rows)

    def __reversed__(self) -> Iterator[T]:
        return map(self._get, reversed(self.rows))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | SharedList):
            return NotImplemented
        if isinstance(other, SharedList) and other.source is self.source and other.rows == self.rows:
            return True  # the very same items, as a list sees it: also where they are not equal to themselves
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    def __add__(self, other: object) -> list[Any]:
        return [*self, *other] if isinstance(other, list | SharedList) else NotImplemented

    def __radd__(self, other: object) -> list[Any]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __repr__(self) -> str:
        shown = [reprlib.repr(item) for item in self[:_SHOWN]]
        if len(self) > _SHOWN:
            shown.append(f"... {len(self)} items")
        return f"SharedList([{', '.join(shown)}])"

    def copy(self) -> list[T]:
        """A list of this process's own."""
        return list(self)

    def __copy__(self) -> Self:
        return self  # it cannot change, and neither can what is in it

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
