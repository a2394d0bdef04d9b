"""What the sampler gives, as units to be sent. None is lost when a signal handler raises in between.

It may be looked ahead, beyond the next unit: what was drawn for that comes later, in its turn.

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

import itertools
import pickle
from collections import deque
from collections.abc import Iterator
from types import GeneratorType
from typing import Any, NamedTuple

from holdfast.loader.interrupts import came_from_handler
from holdfast.loader.units import UnitState, dump_indices


class _Given(NamedTuple):
    payload: bytes  # pickled before the sampler goes on: it may use its list again
    length: int
    is_list: bool

    def unit(self, position: int) -> UnitState:
        return UnitState(self.payload, places=(position,), samples=self.length, is_list=self.is_list)


class _Raised(NamedTuple):
    """The sampler raised here. It is told when this is next, after the good units before it."""

    error: Exception
    length: int = 0


_KEPT = (_Given, _Raised)
_NEVER_CUT: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))


ASKING = "asking the sampler"


class Supply:
    """The indices of one epoch. `ended` when the sampler has no more."""

    def __init__(self, indices: Iterator[Any], *, auto_collation: bool) -> None:
        self._indices = indices
        self._auto_collation = auto_collation
        self._drawn: deque[Any] = deque()  # and not yet taken over: each `_KEPT`, but the last may be as it was given
        self.position = 0  # in the epoch, of the next sample
        self._is_asking = False
        self.ended = False

    def peek(self) -> UnitState | None:
        """The next unit; None at the end. The same again until `taken()` is called. Raises what the sampler raises."""
        if not self._has(1):
            return None
        first = self._drawn[0]
        if isinstance(first, _Raised):
            raise first.error
        unit: UnitState = first.unit(self.position)
        return unit

    def taken(self) -> None:
        """The unit, or the exception, is in the books."""
        if self._drawn:
            self.position += self._drawn.popleft().length

    def ahead(self) -> Iterator[list[Any]]:
        """The indices of the next unit, of the one after that, and so on, as far as the sampler gives any."""
        for k in itertools.count():
            if not self._has(k + 1) or isinstance(self._drawn[k], _Raised):
                return
            yield self._drawn[k].unit(0).listed

    def _has(self, count: int) -> bool:
        """Whether there are so many units; they are drawn if need be."""
        while len(self._drawn) < count and not self.ended:
            self._draw()
        self._keep_last()
        return len(self._drawn) >= count

    def _draw(self) -> None:
        self._keep_last()
        before = len(self._drawn)
        try:
            # in one call of a function written in C: what is given is kept, whenever a signal handler raises
            self._is_asking = True
            self._drawn.extend(map(next, (self._indices,)))
            self._is_asking = False
        except Exception as error:
            if came_from_handler(error):
                raise
            self._is_asking = False
            self._drawn.append(_Raised(error))
        self.ended = len(self._drawn) == before

    def _keep_last(self) -> None:
        if self._drawn and not isinstance(self._drawn[-1], _KEPT):
            self._drawn[-1] = self._given(self._drawn[-1])

    def _given(self, indices: Any) -> _Given | _Raised:
        is_list = self._auto_collation or isinstance(indices, list)
        try:
            payload = dump_indices(indices)
            return _Given(payload, _count(indices, payload) if is_list else 1, is_list)
        except Exception as error:
            if came_from_handler(error):
                raise
            return _Raised(error)

    def mend(self) -> None:
        """After a signal handler may have raised inside the sampler.

        It ends a generator, which would then look exhausted. An iterator of the user's may have advanced without giving
        anything. Only iterators written in C that call no Python code surely have not.
        """
        sampler = self._indices
        is_cut = self._is_asking and not isinstance(sampler, _NEVER_CUT)
        if isinstance(sampler, GeneratorType):
            is_cut = not self.ended and sampler.gi_frame is None
        elif self._drawn and not isinstance(self._drawn[-1], _KEPT):
            is_cut = False  # the sampler had given its indices before the handler raised
        self._is_asking = False
        if is_cut:
            self._indices = _raise_once(RuntimeError("the sampler was ended by a signal handler that raised inside it"))


def _count(indices: Any, payload: bytes) -> int:
    """How many there are, also of what has no length, as a `map`: then a copy of it is counted."""
    try:
        return len(indices)
    except TypeError:
        return sum(1 for _ in pickle.loads(payload))


def _raise_once(error: BaseException) -> Iterator[Any]:
    raise error
    yield
