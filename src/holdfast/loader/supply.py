"""What the sampler gives, as units to be sent. One at a time, and none is lost when a signal handler raises in between.

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

from holdfast.loader.units import UnitState, dump_indices


class Supply:
    """The indices of one epoch. `ended` when the sampler has no more."""

    def __init__(self, indices: Iterator[Any], *, auto_collation: bool) -> None:
        self._indices = indices
        self._auto_collation = auto_collation
        self._drawn: deque[Any] = deque()  # given, and not yet taken over
        self._position = 0  # in the epoch, of the next sample
        self.ended = False

    def peek(self) -> UnitState | None:
        """The next unit; None at the end. The same again until `taken()` is called. Raises what the sampler raises."""
        if not self._drawn and not self.ended:
            # in one call of a function written in C: what is given is kept, whenever a signal handler raises
            self._drawn.extend(map(next, (self._indices,)))
            self.ended = not self._drawn
        return self._make_unit(self._drawn[0]) if self._drawn else None

    def taken(self) -> None:
        """The unit is in the books."""
        if self._drawn:
            self._position += self._count(self._drawn[0])
            self._drawn.clear()

    def _make_unit(self, indices: Any) -> UnitState:
        is_list = self._auto_collation or isinstance(indices, list)
        return UnitState(dump_indices(indices), places=(self._position,), is_list=is_list)

    def _count(self, indices: Any) -> int:
        return len(indices) if self._auto_collation or isinstance(indices, list) else 1

    def mend(self, same_again: Iterator[Any] | None) -> None:
        """A generator that a signal handler raised in has ended, and would pass for one that has given all.

        `same_again`: what may go on in its place, because it says the same for ever.
        """
        sampler = self._indices
        if not self.ended and not self._drawn and isinstance(sampler, GeneratorType) and sampler.gi_frame is None:
            error = RuntimeError("the sampler was ended by a signal handler that raised inside it")
            self._indices = same_again or _raise_once(error)


def _raise_once(error: BaseException) -> Iterator[Any]:
    raise error
    yield
