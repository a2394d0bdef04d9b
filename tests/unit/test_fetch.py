"""Loading one unit of a map-style dataset: in torch's order, with further attempts, without the bad ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.board_rows import PHASE, POSITION, SPAN, Phase
from holdfast.workers import attempts
from holdfast.workers.attempts import Care
from holdfast.workers.board import private_row
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.fetch import MapFetcher

from .jobs import job, where

SKIP, REPLACE = Care("skip"), Care("replace")
RETRY = Care(max_retries=2, retry_on=(OSError,))


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.time, "sleep", lambda seconds: None)


class Samples:
    """Sample i is 10 * i. `errors`: by index, what is raised, one after the other, before it loads."""

    def __init__(self, errors: dict[Any, list[Exception]] | None = None) -> None:
        self.errors = errors or {}
        self.calls: list[Any] = []

    def load(self, index: Any) -> Any:
        if self.errors.get(index):
            raise self.errors[index].pop(0)
        return 10 * index

    def __getitem__(self, index: Any) -> Any:
        self.calls.append(index)
        return [self.load(one) for one in index] if isinstance(index, list) else self.load(index)


class Many(Samples):
    """The same, and all in one call."""

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        self.calls.append(("many", *indices))
        return [self.load(index) for index in indices]


def fetcher(dataset: Any, care: Care | None = None, row: memoryview | None = None, **changes: Any) -> MapFetcher:
    return MapFetcher(job(dataset, care=care, **changes), private_row() if row is None else row, where)


def bad_of(one: MapFetcher) -> list[tuple[Any, ...]]:
    """Position, attempts, the type and the first note of what was raised, and whether it loaded in the end."""
    errors = [rebuild(Failure(*bad.failure)) for bad in one.bad]
    return [
        (bad.position, bad.attempts, type(error), error.__notes__[0], bad.loaded)
        for bad, error in zip(one.bad, errors, strict=True)
    ]


# --- as torch does it -------------------------------------------------------------------------------------------------


def test_samples_come_in_the_order_of_their_indices() -> None:
    """One call each."""
    dataset = Samples()
    assert fetcher(dataset).fetch([3, 1, 3]) == [30, 10, 30]
    assert dataset.calls == [3, 1, 3]


def test_a_dataset_that_loads_many_is_called_once_with_the_very_list() -> None:
    """`__getitems__`, as Subset has it."""
    dataset = Many()
    assert fetcher(dataset).fetch([3, 1]) == [30, 10]
    assert dataset.calls == [("many", 3, 1)]


@pytest.mark.parametrize("index", [3, (1, 2), "a"])
def test_without_batches_the_index_goes_through_as_it_is(index: Any) -> None:
    """batch_size=None: one call, and its result is the sample."""
    dataset = Samples()
    assert fetcher(dataset, auto_collation=False).fetch(index) == 10 * index
    assert dataset.calls == [index]


@pytest.mark.parametrize("kind", [Samples, Many])
@pytest.mark.parametrize("indices", [[3, 1], []])
def test_without_batches_a_list_is_one_index(kind: type[Samples], indices: list[int]) -> None:
    """The dataset makes the batch; `__getitems__` is not asked."""
    dataset = kind()
    assert fetcher(dataset, auto_collation=False).fetch(indices) == [10 * index for index in indices]
    assert dataset.calls == [indices]


@pytest.mark.parametrize("kind", [Samples, Many])
@pytest.mark.parametrize("care", [Care(), SKIP, REPLACE, RETRY], ids=["raise", "skip", "replace", "retry"])
def test_while_all_is_well_no_arguments_change_the_calls(kind: type[Samples], care: Care) -> None:
    """The same calls, the same samples, nothing bad."""
    plain, careful = kind(), kind()
    one = fetcher(careful, care)
    assert one.fetch([3, 1]) == fetcher(plain).fetch([3, 1])
    assert careful.calls == plain.calls
    assert one.bad == []


@pytest.mark.parametrize("kind", [Samples, Many])
@pytest.mark.parametrize("auto_collation", [True, False])
def test_what_a_dataset_raises_is_raised(kind: type[Samples], auto_collation: bool) -> None:
    """The very object, at the first attempt."""
    error = ValueError("bad")
    with pytest.raises(ValueError, match="bad") as caught:
        fetcher(kind({1: [error]}), auto_collation=auto_collation).fetch([3, 1])
    assert caught.value is error


@pytest.mark.parametrize("kind", [Samples, Many])
@pytest.mark.parametrize("auto_collation", [True, False])
@pytest.mark.parametrize("care", [Care(), RETRY, Care(max_retries=2, retry_on=(RuntimeError,))])
def test_a_stop_iteration_is_an_error_and_not_the_end(kind: type[Samples], auto_collation: bool, care: Care) -> None:
    """torch would drop the rest of the data without a word. Also where it comes at a later attempt."""
    errors: list[Exception] = [OSError(), StopIteration(), StopIteration(), StopIteration(), StopIteration()]
    with pytest.raises((RuntimeError, OSError)) as caught:
        fetcher(kind({1: errors if care is RETRY else errors[1:]}), care, auto_collation=auto_collation).fetch([3, 1])
    assert "raised StopIteration" in str(caught.value)
    assert isinstance(caught.value.__cause__, StopIteration)


class Marked(list[int]):
    """What a sampler gives together with something that the dataset wants to know."""


def test_without_batches_the_dataset_gets_the_very_list() -> None:
    """It may be of a class of its own."""
    dataset, indices = Samples(), Marked([3, 1])
    assert fetcher(dataset, auto_collation=False).fetch(indices) == [30, 10]
    assert dataset.calls[0] is indices


# --- further attempts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "first"), [(Samples, 0), (Many, 1)], ids=["each", "many"])
def test_a_sample_that_raises_what_is_listed_is_tried_again(kind: type[Samples], first: int) -> None:
    """It comes in its place, and how often it was tried is told. A call for many that raised is no attempt at one."""
    one = fetcher(kind({1: [OSError("a"), OSError("b")]}), RETRY)
    assert one.fetch([3, 1, 2]) == [30, 10, 20]
    assert bad_of(one) == [(1, 3 - first, OSError, "in a test, dataset[1]", True)]


def test_without_batches_a_list_is_tried_one_by_one_and_then_as_a_whole() -> None:
    """What each gave alone is forgotten: the batch is the dataset's own."""
    dataset = Samples({1: [OSError("a"), OSError("b")]})
    one = fetcher(dataset, RETRY, auto_collation=False)
    assert one.fetch([3, 1]) == [30, 10]
    assert dataset.calls == [[3, 1], [3], [1], [1], [3, 1]]
    assert [bad[4] for bad in bad_of(one)] == [True]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("auto_collation", [True, False])
def test_a_sample_that_loads_in_the_end_is_in_the_batch(on_error: str, auto_collation: bool) -> None:
    """Nothing is left out, whatever is to be done about what cannot be loaded."""
    care = Care(on_error, 2, (OSError,))
    one = fetcher(Samples({1: [OSError("a"), OSError("b")]}), care, auto_collation=auto_collation)
    assert one.fetch([3, 1]) == [30, 10]
    assert [bad.loaded for bad in one.bad] == [True]


def test_a_sample_that_fails_at_every_attempt_raises_its_last() -> None:
    """After max_retries more."""
    errors: list[Exception] = [OSError(k) for k in range(9)]
    with pytest.raises(OSError, match="2"):
        fetcher(Samples({1: errors}), RETRY).fetch([3, 1])
    assert len(errors) == 6


# --- bad samples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Samples, Many])
@pytest.mark.parametrize("care", [SKIP, REPLACE], ids=["skip", "replace"])
def test_bad_samples_are_left_out_and_named(kind: type[Samples], care: Care) -> None:
    """With their positions in the list that was asked for. The next unit begins with none."""
    one = fetcher(kind({1: [ValueError("bad")] * 9, 4: [ValueError("bad")] * 9}), care)
    assert one.fetch([3, 1, 2, 4]) == [30, 20]
    notes = [f"in a test, dataset[{index}]" for index in (1, 4)]
    assert bad_of(one) == [(1, 1, ValueError, notes[0], False), (3, 1, ValueError, notes[1], False)]
    assert one.fetch([3]) == [30]
    assert one.bad == []


@pytest.mark.parametrize(("care", "expected"), [(SKIP, [30, 20]), (REPLACE, None)], ids=["skip", "replace"])
def test_without_batches_the_good_ones_of_a_list_are_a_batch(care: Care, expected: Any) -> None:
    """Unless the bad ones are to be replaced: then there is none yet."""
    one = fetcher(Samples({1: [ValueError("bad")] * 9}), care, auto_collation=False)
    assert one.fetch([3, 1, 2]) == expected
    assert [(bad.position, bad.loaded) for bad in one.bad] == [(1, False)]


@pytest.mark.parametrize("auto_collation", [True, False])
def test_where_all_are_bad_there_is_nothing(auto_collation: bool) -> None:
    """Not even a call for none."""
    dataset = Samples({1: [ValueError("bad")] * 9})
    one = fetcher(dataset, SKIP, auto_collation=auto_collation)
    assert not one.fetch([1, 1])
    assert [bad.position for bad in one.bad] == [0, 1]
    assert [] not in dataset.calls


def test_without_batches_a_bad_sample_is_none() -> None:
    """And named."""
    one = fetcher(Samples({1: [ValueError("bad")]}), SKIP, auto_collation=False)
    assert (one.fetch(1), [bad.position for bad in one.bad]) == (None, [0])


def test_a_list_that_fails_only_as_a_whole_raises() -> None:
    """No sample of it is bad."""

    class TogetherBad(Samples):
        def __getitem__(self, index: Any) -> Any:
            if len(index) > 1:
                raise ValueError("together")
            return super().__getitem__(index)

    with pytest.raises(ValueError, match="together"):
        fetcher(TogetherBad(), SKIP, auto_collation=False).fetch([3, 1])


@pytest.mark.parametrize("kind", [Samples, Many])
def test_errors_of_the_program_are_raised_though_samples_are_skipped(kind: type[Samples]) -> None:
    """A name that does not exist would skip everything."""
    with pytest.raises(NameError):
        fetcher(kind({1: [NameError("np")] * 9}), SKIP).fetch([3, 1])


# --- one by one -------------------------------------------------------------------------------------------------------


def test_one_by_one_a_dataset_that_loads_many_is_asked_for_each() -> None:
    """Through the same method: it may be all that the dataset has."""
    dataset = Many()
    assert fetcher(dataset).fetch([3, 1], one_by_one=True) == [30, 10]
    assert dataset.calls == [("many", 3), ("many", 1)]


def test_one_by_one_a_list_without_batches_is_tried_each_first() -> None:
    """A worker has died on it."""
    dataset = Samples()
    assert fetcher(dataset, auto_collation=False).fetch([3, 1], one_by_one=True) == [30, 10]
    assert dataset.calls == [[3], [1], [3, 1]]


class Watched(Many):
    """Notes what the board says while it loads."""

    def __init__(self, row: memoryview, errors: dict[Any, list[Exception]] | None = None) -> None:
        super().__init__(errors)
        self.row, self.seen = row, list[tuple[int, int, int]]()

    def load(self, index: Any) -> Any:
        self.seen.append((self.row[PHASE], self.row[POSITION], self.row[SPAN]))
        return super().load(index)


@pytest.mark.parametrize(
    ("auto_collation", "one_by_one", "expected"),
    [
        (True, False, [(-1, 2), (-1, 2)]),
        (True, True, [(0, 1), (1, 1)]),
        (False, False, [(-1, 2), (-1, 2)]),
        (False, True, [(0, 1), (1, 1), (-1, 2), (-1, 2)]),
    ],
)
def test_the_board_says_which_sample_is_in_hand(
    auto_collation: bool, one_by_one: bool, expected: list[tuple[int, int]]
) -> None:
    """-1 where one call loads many, and how many: what a deadline is multiplied by."""
    row = private_row()
    dataset = Watched(row)
    fetcher(dataset, row=row, auto_collation=auto_collation).fetch([3, 1], one_by_one=one_by_one)
    assert dataset.seen == [(Phase.FETCH, *seen) for seen in expected]


# --- rng="sample" -----------------------------------------------------------------------------------------------------


class Draws(Samples):
    def load(self, index: Any) -> Any:
        super().load(index)
        return index, random.random()


class DrawsMany(Draws, Many):
    pass


@pytest.mark.parametrize("kind", [Draws, DrawsMany])
@pytest.mark.usefixtures("generators_restored")
def test_the_numbers_of_a_sample_depend_on_its_place_alone(kind: type[Draws]) -> None:
    """Not on the others of its unit, on how they are loaded, nor on attempts that failed."""
    expected = fetcher(kind(), sample_seed=5).fetch([3, 1, 2], (40,))
    assert len({number for _, number in expected}) == 3
    assert fetcher(kind(), sample_seed=5).fetch([3, 2], (40, 42)) == [expected[0], expected[2]]
    again = kind({1: [OSError()], 2: [OSError(), OSError()]})
    assert fetcher(again, RETRY, sample_seed=5).fetch([3, 1, 2], (40,)) == expected
    assert set(fetcher(kind(), sample_seed=6).fetch([3, 1, 2], (40,))).isdisjoint(expected)


class Drawing(Samples):
    """Samples of a list are as many random numbers."""

    def __getitem__(self, index: Any) -> Any:
        for one in index:
            self.load(one)
        return [random.random() for _ in index]


def test_what_is_drawn_for_a_list_does_not_depend_on_when_a_sample_is_known_to_be_bad() -> None:
    """The first of a list fails, or was left out before: the others draw the same."""
    late = fetcher(Drawing({3: [ValueError("bad")] * 9}), SKIP, auto_collation=False, sample_seed=77).fetch(
        [3, 1, 2], (10,)
    )
    early = fetcher(Drawing(), SKIP, auto_collation=False, sample_seed=77).fetch([1, 2], (11, 12))
    assert late == early
