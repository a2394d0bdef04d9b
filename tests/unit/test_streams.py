"""Loading units of an iterable dataset: elements in order, holes where one raised, and an honest end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.workers import attempts
from holdfast.workers.attempts import Care
from holdfast.workers.board import private_row
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.streams import IterableFetcher, StreamEnded

from .jobs import job, where

SKIP, REPLACE = Care("skip"), Care("replace")
RETRY = Care(max_retries=2, retry_on=(OSError,))


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.time, "sleep", lambda seconds: None)


class Elements:
    """An iterator that goes on after an exception: what is one is raised, and then it is the next one's turn."""

    def __init__(self, *elements: Any) -> None:
        self._left = list(elements)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        element = self._left.pop(0)
        if isinstance(element, Exception):
            raise element
        return element


def generator(*elements: Any) -> Iterator[Any]:
    for element in elements:
        if isinstance(element, Exception):
            raise element
        yield element


def fetcher(dataset: Any, care: Care | None = None, row: memoryview | None = None, **changes: Any) -> IterableFetcher:
    made = job(dataset, care=care, is_iterable=True, **changes)
    return IterableFetcher(made, private_row() if row is None else row, where, worker_id=1)


def units_of(one: IterableFetcher, size: int = 2) -> list[Any]:
    """All units until the end, exceptions among them."""
    units: list[Any] = []
    while True:
        try:
            units.append(one.fetch([None] * size))
        except StreamEnded:
            return units
        except Exception as error:
            units.append(error)


# --- as torch does it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", [[1, 2, 3, 4, 5], Elements(1, 2, 3, 4, 5), generator(1, 2, 3, 4, 5)], ids=type)
def test_elements_come_in_order_and_the_last_batch_is_short(dataset: Any) -> None:
    """Whatever makes them; then there are none, for ever."""
    one = fetcher(dataset)
    assert units_of(one) == [[1, 2], [3, 4], [5]]
    for _ in range(2):
        with pytest.raises(StreamEnded):
            one.fetch([None, None])
    assert one.elements == 5


@pytest.mark.parametrize(("count", "expected"), [(5, [[0, 1], [2, 3]]), (4, [[0, 1], [2, 3]]), (1, []), (0, [])])
def test_with_drop_last_only_whole_batches_come(count: int, expected: list[Any]) -> None:
    """The last one, if it is short, is dropped."""
    assert units_of(fetcher(range(count), drop_last=True)) == expected


def test_without_batches_each_unit_is_an_element() -> None:
    """batch_size=None; an element may be None, or a list."""
    assert units_of(fetcher([None, [1], 2], auto_collation=False), size=1) == [None, [1], 2]


def test_an_iterator_that_ended_is_not_asked_again() -> None:
    """Some start anew when they are."""

    class Restarting(Elements):
        def __next__(self) -> Any:
            try:
                return super().__next__()
            except StopIteration:
                self._left = [7]
                raise

    assert units_of(fetcher(Restarting(1, 2, 3))) == [[1, 2], [3]]


@pytest.mark.parametrize("make", [Elements, generator])
def test_what_an_iterator_raises_is_raised(make: Callable[..., Any]) -> None:
    """The very object; what was taken for the same batch is lost with it, as in torch."""
    error = ValueError("bad")
    units = units_of(fetcher(make(1, 2, 3, error, 5, 6)))
    assert units[:2] == [[1, 2], error]
    assert units[2:] == ([[5, 6]] if make is Elements else [])


# --- elements that raise ----------------------------------------------------------------------------------------------


def test_an_element_that_raises_is_left_out_where_the_iterator_goes_on() -> None:
    """The batch is smaller. Which element it was, of the unit and of the stream, is told."""
    one = fetcher(Elements(1, 2, ValueError("bad"), 4, 5), SKIP)
    assert one.fetch([None, None]) == [1, 2]
    assert one.bad == []
    assert one.fetch([None, None]) == [4]
    (bad,) = one.bad
    assert (bad.position, bad.attempts, bad.loaded) == (2, 1, False)
    assert rebuild(Failure(*bad.failure)).__notes__[0] == "in a test, element 2 of the worker's stream"
    assert one.fetch([None, None]) == [5]
    assert (one.units, one.elements) == (3, 5)


def test_a_unit_of_which_every_element_raises_is_empty_and_not_the_end() -> None:
    """Nothing to collate, and more to come."""
    one = fetcher(Elements(ValueError(), ValueError(), 3), SKIP)
    assert one.fetch([None, None]) == []
    assert [bad.position for bad in one.bad] == [0, 1]
    assert one.fetch([None, None]) == [3]


def test_without_batches_an_element_that_raises_is_none() -> None:
    """And named."""
    one = fetcher(Elements(ValueError(), 2), SKIP, auto_collation=False)
    assert (one.fetch(None), len(one.bad)) == (None, 1)
    assert (one.fetch(None), one.bad) == (2, [])


def test_with_replace_another_element_of_the_batch_is_in_its_place() -> None:
    """The size stays; the others stay where they are; which it is depends on the place alone."""
    units = [fetcher(Elements(1, ValueError(), 3, 4), REPLACE).fetch([None] * 4) for _ in range(3)]
    assert [unit[:1] + unit[2:] for unit in units] == [[1, 3, 4]] * 3
    assert units[0][1] in (1, 3, 4)
    assert units == [units[0]] * 3


def test_an_element_that_raised_counts_towards_a_whole_batch() -> None:
    """drop_last is about how many elements there were."""
    assert units_of(fetcher(Elements(1, 2, ValueError(), 4, 5), SKIP, drop_last=True)) == [[1, 2], [4]]


def test_errors_of_the_program_are_raised_though_elements_are_skipped() -> None:
    """A forgotten import."""
    error = ImportError("np")
    assert units_of(fetcher(Elements(1, error, 3, 4), SKIP)) == [error, [3, 4]]


@pytest.mark.parametrize("care", [RETRY, Care("skip", 2, (OSError,))], ids=["raise", "skip"])
def test_an_iterator_is_asked_again_after_what_is_listed(care: Care) -> None:
    """What it gives then stands in that place."""
    one = fetcher(Elements(1, OSError(), OSError(), 2, 3), care)
    assert one.fetch([None, None]) == [1, 2]
    assert [(bad.position, bad.attempts, bad.loaded) for bad in one.bad] == [(1, 3, True)]
    assert one.fetch([None, None]) == [3]


@pytest.mark.parametrize("make", [Elements, generator])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_iterator_that_ends_when_asked_again_has_raised_its_error(make: Callable[..., Any], on_error: str) -> None:
    """And not StopIteration, which would end the epoch as if all had been delivered."""
    error = OSError("gone")
    one = fetcher(make(1, 2, 3, error), Care(on_error, 2, (OSError,)))
    units = units_of(one)
    if on_error == "raise":
        assert units == [[1, 2], error]
    elif make is generator:
        assert units == [[1, 2], [3], error]
    else:
        assert units == [[1, 2], [3]]


# --- generators -------------------------------------------------------------------------------------------------------


class Holder:
    """An iterator class that draws from another."""

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.source)


class SlottedHolder(Holder):
    __slots__ = ("source",)


class OnlySlots(Iterator[Any]):
    __slots__ = ("source",)
    __init__, __next__ = Holder.__init__, Holder.__next__


def delegating(source: Iterator[Any]) -> Iterator[Any]:
    yield from source


WRAPPED: dict[str, Callable[[Iterator[Any]], Any]] = {
    "itself": lambda source: source,
    "map": lambda source: map(int, source),
    "filter": lambda source: filter(lambda element: True, source),
    "zip": lambda source: (pair[0] for pair in zip(source, itertools.count(), strict=False)),
    "starmap": lambda source: itertools.starmap(lambda a, b: a, zip(source, itertools.count(), strict=False)),
    "islice": lambda source: itertools.islice(source, 100),
    "chain": lambda source: itertools.chain([], source),
    "class attribute": Holder,
    "slot": SlottedHolder,
    "nothing but slots": OnlySlots,
    "pairwise": lambda source: (pair[1] for pair in itertools.pairwise(itertools.chain([0], source))),
    "map of pairwise": lambda source: map(max, itertools.pairwise(itertools.chain([0], source))),
    "islice of pairwise": lambda source: itertools.islice(
        map(max, itertools.pairwise(itertools.chain([0], source))), 9
    ),
    "map of a class of a generator": lambda source: map(int, Holder(delegating(source))),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_stream_that_draws_from_a_generator_ends_with_its_exception(wrap: Callable[[Any], Any]) -> None:
    """A generator cannot go on. What came before it is delivered, then the exception, which says so, and then nothing:
    an epoch that ended early does not look like one that was complete."""
    error = ValueError("bad")
    units = units_of(fetcher(wrap(generator(1, 2, 3, error, 5)), SKIP))
    assert units == [[1, 2], [3], error]
    (note,) = error.__notes__
    assert note.startswith("this worker's part of the iterable dataset ends here, after 3 elements")


@pytest.mark.parametrize("care", [Care(), SKIP, RETRY], ids=["raise", "skip", "retry"])
def test_the_note_counts_what_came_before(care: Care) -> None:
    """And not the element that raised."""
    error = OSError("bad")
    units_of(fetcher(generator(1, 2, 3, error), care))
    assert "after 3 elements" in error.__notes__[0]


def test_a_generator_that_had_ended_before_does_not_end_the_stream() -> None:
    """A class that draws from one shard after the other, and could not open the third."""

    class Shards:
        def __init__(self) -> None:
            self.shards = [[1, 2], [3], OSError("no such shard"), [4, 5]]
            self.current = generator()

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            for element in self.current:
                return element
            if not self.shards:
                raise StopIteration
            shard = self.shards.pop(0)
            if isinstance(shard, Exception):
                raise shard
            self.current = generator(*shard)
            return next(self.current)

    assert units_of(fetcher(Shards(), SKIP), size=3) == [[1, 2, 3], [4, 5]]


def test_a_generator_that_is_used_for_one_element_does_not_end_the_stream() -> None:
    """An expression inside __next__ that raised: it is gone, and the iterator goes on."""

    class Parsed(Elements):
        def __next__(self) -> Any:
            return sum(int(part) for part in super().__next__().split("+"))

    assert units_of(fetcher(Parsed("1+2", "3+x", "4+5"), SKIP)) == [[3], [9]]
