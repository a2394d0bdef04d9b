"""What the sampler gives, one unit at a time, and what may be seen of it beforehand."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.loader.supply import Supply


def taken(supply: Supply) -> list[tuple[Any, tuple[int, ...]]]:
    """All that is left: the indices of each unit, and their place in the epoch."""
    found = []
    while (unit := supply.peek()) is not None:
        found.append((unit.indices, unit.places))
        supply.taken()
    return found


WHOLE = [([0, 1], (0,)), ([2, 3], (2,)), ([4], (4,))]


def batches() -> Iterator[list[int]]:
    """A sampler that uses its list again, as it may: without workers a batch is loaded before the next is drawn."""
    batch: list[int] = []
    for indices in ((0, 1), (2, 3), (4,)):
        batch[:] = indices
        yield batch


def test_units_come_in_order_with_their_places() -> None:
    """Asked twice, the same; then the next."""
    supply = Supply(batches(), auto_collation=True)
    assert supply.peek() == supply.peek()
    assert taken(supply) == WHOLE
    assert supply.ended


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("seen", [1, 2, 3])
def test_what_was_seen_ahead_comes_in_its_turn(before: int, seen: int) -> None:
    """Nothing is lost, repeated or changed, though the sampler has used its list again by then."""
    supply = Supply(batches(), auto_collation=True)
    for _ in range(before):
        supply.peek()
        supply.taken()
    expected = [indices for indices, _ in WHOLE[before:]]
    for _ in range(2):
        assert list(itertools.islice(supply.ahead(), seen)) == expected[:seen]
    assert taken(supply) == WHOLE[before:]


def test_without_batches_an_index_is_a_unit() -> None:
    """batch_size=None: whatever the index is; but a list is one of several samples."""
    supply = Supply(iter([(1, 2), [3, 4], 5]), auto_collation=False)
    assert list(supply.ahead()) == [[(1, 2)], [3, 4], [5]]
    assert taken(supply) == [((1, 2), (0,)), ([3, 4], (1,)), (5, (3,))]


def test_an_exception_that_is_met_ahead_is_raised_in_its_turn() -> None:
    """After the good units before it, once; then the sampler has ended."""

    def sampler() -> Iterator[int]:
        yield 0
        yield 1
        raise ValueError("a broken sampler")

    supply = Supply(sampler(), auto_collation=False)
    assert list(supply.ahead()) == [[0], [1]]
    for index in (0, 1):
        unit = supply.peek()
        assert unit is not None
        assert unit.indices == index
        supply.taken()
    for _ in range(2):
        with pytest.raises(ValueError, match="a broken sampler"):
            supply.peek()
    supply.taken()
    assert supply.peek() is None


def test_batches_without_a_length_are_counted() -> None:
    """As torch, which never asks for one."""
    supply = Supply(iter([map(abs, [0, -1]), map(abs, [-2])]), auto_collation=True)
    assert [(list(indices), places) for indices, places in taken(supply)] == [([0, 1], (0,)), ([2], (2,))]


class Interrupted(Exception):
    """Raised by a handler."""


def interrupt(*_: object) -> None:
    raise Interrupted


class Interrupting:
    """An index with which a signal comes, the first time it is pickled."""

    def __init__(self) -> None:
        self.signals = [signal.SIGUSR1]

    def __reduce__(self) -> tuple[Any, ...]:
        while self.signals:
            signal.raise_signal(self.signals.pop())
        return int, (7,)


def test_what_a_signal_handler_raises_while_indices_are_pickled_is_raised() -> None:
    """It is none of the sampler's: they are not taken for indices that need another pickler. They come next time."""
    supply = Supply(iter([[Interrupting()]]), auto_collation=True)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            supply.peek()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert taken(supply) == [([7], (0,))]
