"""A worker that replaces another takes its stream up: by the iterable's own state, or by running it again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board_rows import PHASE, POSITION, SPAN, UNIT, Phase
from holdfast.workers import streams
from holdfast.workers.attempts import Care
from holdfast.workers.board import private_row
from holdfast.workers.messages import Progress
from holdfast.workers.streams import IterableFetcher, StateTimer, StreamEnded

from .jobs import job, where


class ByGenerator:
    """The dataset knows its state; its iterator is a generator, which does not."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 10:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Cursor:
    """An iterator that knows its state."""

    def __init__(self, stop: int) -> None:
        self.at, self.stop = 0, stop

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at >= self.stop:
            raise StopIteration
        self.at += 1
        return self.at - 1

    state_dict, load_state_dict = ByGenerator.state_dict, ByGenerator.load_state_dict


class ByIterator:
    """Only the iterator knows its state."""

    def __iter__(self) -> Cursor:
        return Cursor(10)


class ByBoth(ByIterator):
    """Both have one, and they mean different things."""

    def state_dict(self) -> dict[str, str]:
        return {"name": "dataset"}

    def load_state_dict(self, state: dict[str, str]) -> None:
        assert state == {"name": "dataset"}


class ByItself(Cursor):
    """The dataset is its own iterator, and starts anew when one is asked for."""

    def __init__(self) -> None:
        super().__init__(10)

    def __iter__(self) -> Iterator[int]:
        self.at = 0
        return self


class Plain:
    """Knows nothing of states."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


STATEFUL: list[Callable[[], Any]] = [ByGenerator, ByIterator, ByBoth, ByItself]


def opened(dataset: Any, state: bytes = b"", row: memoryview | None = None, **changes: Any) -> IterableFetcher:
    made = job(dataset, is_iterable=True, **changes)
    return IterableFetcher(made, private_row() if row is None else row, where, worker_id=0, state=state)


def rest(one: IterableFetcher, size: int = 2) -> list[int]:
    elements: list[int] = []
    while True:
        try:
            elements += one.fetch([None] * size)
        except StreamEnded:
            return elements


# --- by its own state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", STATEFUL)
@pytest.mark.parametrize("units", range(6))
def test_a_stream_goes_on_from_its_state(make: Callable[[], Any], units: int) -> None:
    """After any number of units: nothing twice, nothing missing."""
    first = opened(make())
    for _ in range(units):
        first.fetch([None, None])
    assert rest(opened(make(), first.state())) == [*range(2 * units, 10)]


@pytest.mark.parametrize("make", STATEFUL)
def test_a_dataset_is_asked_for_one_iterator(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a state or without: __iter__ may open files and draw numbers."""
    calls: list[object] = []
    monkeypatch.setattr(streams, "iter", lambda dataset: calls.append(dataset) or dataset.__iter__(), raising=False)
    first = opened(make())
    opened(make(), first.state())
    assert len(calls) == 2


@given(make=st.sampled_from(STATEFUL), taken=st.integers(0, 5), since=st.integers(0, 6))
def test_a_stream_goes_on_from_an_older_state(make: Callable[[], Any], taken: int, since: int) -> None:
    """What came since it was taken is run again, for nothing; also when that was the end."""
    first = opened(make())
    for _ in range(taken):
        first.fetch([None, None])
    state = first.state()
    for _ in range(since):
        with contextlib.suppress(StreamEnded):
            first.fetch([None, None])
    progress = Progress({}, {}, units=first.units, elements=first.elements, unit_size=2)
    again = opened(make(), state)
    again.units, again.elements = taken, 2 * taken
    again.run_up_to(progress, None)
    assert (again.units, again.elements) == (first.units, first.elements)
    assert rest(again) == rest(first)


def test_a_state_is_due_when_it_costs_a_hundredth_of_the_time() -> None:
    """The first at once, the next after a hundred times as long as that took."""
    timer = StateTimer()
    assert timer.is_due(5_000)
    timer.took(5_000, 5_030)
    assert not timer.is_due(5_030)
    assert not timer.is_due(8_029)
    assert timer.is_due(8_030)
    timer.took(9_000, 9_001)
    assert not timer.is_due(9_100)
    assert timer.is_due(9_101)


class Laborious(ByGenerator):
    """By `clock` a state takes 10 ns."""

    def __init__(self, clock: list[int]) -> None:
        super().__init__()
        self.clock = clock

    def state_dict(self) -> dict[str, int]:
        self.clock[0] += 10
        return super().state_dict()


def test_a_state_is_taken_when_it_is_due_or_needed_and_not_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it may be that of a new start. One that is taken because it is needed has its price too."""
    clock = [7]
    monkeypatch.setattr(streams, "monotonic_ns", lambda: clock[0])
    one = opened(Laborious(clock))

    def has_state(elapsed_ns: int, *, is_needed: bool = False) -> bool:
        one.fetch([None] * 2)
        clock[0] += elapsed_ns
        return one.due_state(is_needed=is_needed) != b""

    assert has_state(0)
    assert not has_state(999)
    assert has_state(0, is_needed=True)
    assert not has_state(999)
    assert has_state(1)
    assert not one.has_ended
    with pytest.raises(StreamEnded):
        one.fetch([None] * 2)
    assert one.has_ended
    clock[0] += 1 << 40
    assert one.due_state(is_needed=True) == b""


def test_a_short_last_unit_says_that_it_was_the_last() -> None:
    """The iterable has ended with it, though it is a batch like others."""
    one = opened(ByIterator())
    ended = []
    for _ in range(3):
        one.fetch([None] * 4)
        ended.append(one.has_ended)
    assert ended == [False, False, True]


def test_a_state_too_large_for_a_message_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is run again, then, as one that knows no state."""
    monkeypatch.setattr(streams, "_LARGEST_STATE_BYTES", 20)
    one = opened(ByGenerator())
    assert one.state() == b""
    assert not one.knows_state


def test_a_stream_without_a_state_has_none() -> None:
    """It will be run again from the start."""
    assert opened(Plain()).state() == b""


class Dying(ByGenerator):
    """By its state it is past the element that its generator has died of."""

    def __iter__(self) -> Iterator[int]:
        while self.at < 10:
            self.at += 1
            if self.at == 4:
                raise OSError("element 3 does not come")
            yield self.at - 1


@pytest.mark.parametrize(("on_error", "units"), [("raise", 1), ("raise", 2), ("skip", 1), ("skip", 2), ("skip", 3)])
def test_a_stream_that_died_is_not_taken_up_after_that(on_error: str, units: int) -> None:
    """Whoever is lost when: the exception comes, once, and then the end."""
    before = opened(Dying(), care=Care(on_error))
    progress, _ = lived(before, units)
    state = before.state()
    assert bool(state) == (units == 1)  # unit 0 is elements 0 and 1; unit 1 has element 2, and breaks
    if not state:
        again = opened(Dying(), care=Care(on_error))
        again.run_up_to(progress, None)
        assert fate(again) == fate(before)


@pytest.mark.parametrize(("on_error", "units"), [("raise", 2), ("skip", 2), ("skip", 3)])
def test_a_stream_that_died_dies_again_from_an_older_state(on_error: str, units: int) -> None:
    """What it raised, if it was delivered, is not raised once more."""
    before = opened(Dying(), care=Care(on_error))
    lived(before, 1)
    state = before.state()
    progress, _ = lived(before, units - 1)
    again = opened(Dying(), state, care=Care(on_error))
    again.units, again.elements = 1, 2
    again.run_up_to(progress, None)
    assert fate(again) == fate(before)


def fate(one: IterableFetcher) -> list[str]:
    """What the rest comes to."""
    found = list[str]()
    while "end" not in found:
        try:
            found.append(str(one.fetch([None, None])))
        except StreamEnded:
            found.append("end")
        except OSError as error:
            found.append(str(error))
    return found


class Unsendable(ByGenerator):
    def state_dict(self) -> Any:
        return {"at": self.at, "source": (element for element in ())}


class AnotherMeaning(ByGenerator):
    def state_dict(self, prefix: str) -> Any:  # type: ignore[override]
        return {}


class Refusing(ByGenerator):
    def state_dict(self) -> Any:
        raise RuntimeError("not while iterating")


@pytest.mark.parametrize("make", [Unsendable, AnotherMeaning, Refusing])
def test_a_state_that_cannot_be_taken_is_none(make: Callable[[], Any]) -> None:
    """torch would never have asked for it: an epoch that works there works here."""
    one = opened(make())
    for _ in range(2):
        one.fetch([None, None])
        assert one.state() == b""
    assert rest(one) == [*range(4, 10)]


# --- by running it again ----------------------------------------------------------------------------------------------


@given(units=st.integers(0, 7), size=st.integers(1, 4), auto_collation=st.booleans())
def test_a_stream_is_run_up_to_where_it_was(units: int, size: int, auto_collation: bool) -> None:
    """By as many units of the same size, also beyond its end; what is left is what was left."""

    def taken(one: IterableFetcher) -> list[Any]:
        units: list[Any] = []
        try:
            while True:
                units.append(one.fetch([None] * size))
        except StreamEnded:
            return units

    everything = taken(opened(range(10), auto_collation=auto_collation))
    one = opened(range(10), auto_collation=auto_collation)
    one.run_up_to(Progress({}, {}, units=units, unit_size=size), None)
    assert taken(one) == everything[units:]


def test_what_is_run_again_is_collated_again_but_for_what_killed_a_worker() -> None:
    """A collate function may draw random numbers."""
    seen: list[list[int]] = []
    opened(Plain()).run_up_to(Progress({}, {}, units=4, unit_size=2, uncollated=(1, 2)), seen.append)
    assert seen == [[0, 1], [6, 7]]


def test_what_was_raised_the_first_time_is_not_raised_again() -> None:
    """By an element, or by the collation."""

    class Rough:
        def __init__(self) -> None:
            self.at = -1

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at == 2:
                raise ValueError(self.at)
            return self.at

    def collate(samples: list[int]) -> None:
        raise KeyError(samples)

    one = opened(Rough())
    one.run_up_to(Progress({}, {}, units=2, elements=3, unit_size=2, cut=((1, 1),)), collate)
    assert one.fetch([None, None]) == [3, 4]


def test_a_stream_that_broke_is_broken_again() -> None:
    """Its error was delivered: what comes after it is the end."""

    def broken() -> Iterator[int]:
        yield from (0, 1, 2)
        raise ValueError("bad")

    one = opened(broken(), care=Care("skip"))
    one.run_up_to(Progress({}, {}, units=2, unit_size=2), None)
    with pytest.raises(ValueError, match="bad"):
        one.fetch([None, None])
    again = opened(broken(), care=Care("skip"))
    again.run_up_to(Progress({}, {}, units=3, elements=4, unit_size=2, cut=((2, 0),)), None)
    with pytest.raises(StreamEnded):
        again.fetch([None, None])


class Moody:
    """Elements 0 to 11. Some raise; an iterator goes on after that, a generator does not."""

    def __init__(self, raising: Collection[int]) -> None:
        self.raising, self.at = raising, -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 12:
            raise StopIteration
        if self.at in self.raising:
            raise OSError(f"element {self.at} does not come")
        return self.at


def lived(one: IterableFetcher, units: int) -> tuple[Progress, list[Any]]:
    """What a worker does, and what it tells of it."""
    progress, given = Progress({}, {}, unit_size=2), list[Any]()
    for _ in range(units):
        try:
            given.append(one.fetch([None, None]))
        except OSError as error:
            given.append(str(error))
        cut = (*progress.cut, (one.units - 1, one.cut)) if one.cut >= 0 else progress.cut
        progress = progress._replace(units=one.units, elements=one.elements, cut=cut)
    return progress, given


@given(
    units=st.integers(1, 4),
    care=st.sampled_from([Care("raise"), Care("skip")]),
    first=st.frozensets(st.integers(0, 11), max_size=3),
    second=st.frozensets(st.integers(0, 7), max_size=3),
)
def test_other_exceptions_than_the_first_time_lose_nothing_of_an_iterator(
    units: int, care: Care, first: frozenset[int], second: frozenset[int]
) -> None:
    """Neither one that comes now and did not, nor one that came and does not: what follows is what followed."""
    before = opened(Moody(first), care=care)
    progress, _ = lived(before, units)
    again = opened(
        Moody({at for at in second if at < progress.elements} | {at for at in first if at >= progress.elements}),
        care=care,
    )
    again.run_up_to(progress, None)
    assert (again.units, again.elements) == (before.units, before.elements)
    assert lived(again, 2)[1] == lived(before, 2)[1]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("raising", range(6))
def test_a_generator_that_ends_only_when_it_is_run_again_says_so(on_error: str, raising: int) -> None:
    """Also at the last element of all, where as many have come as did."""
    progress, _ = lived(opened(iter(range(12)), care=Care(on_error)), 3)
    one = opened((element for element in Moody({raising})), care=Care(on_error))
    one.run_up_to(progress, None)
    with pytest.raises(OSError, match=f"element {raising} does not come") as caught:
        one.fetch([None, None])
    assert "ran the iterable dataset again, up to element 6" in "".join(caught.value.__notes__)
    with pytest.raises(StreamEnded):
        one.fetch([None, None])


@pytest.mark.parametrize("length", range(6))
def test_an_iterable_that_is_shorter_when_it_is_run_again_says_so(length: int) -> None:
    progress, _ = lived(opened(range(12)), 3)
    one = opened(range(length))
    one.run_up_to(progress, None)
    with pytest.raises(RuntimeError, match=f"gave {length} elements when it was run again, and 6 before"):
        one.fetch([None, None])
    with pytest.raises(StreamEnded):
        one.fetch([None, None])


@pytest.mark.usefixtures("generators_restored")
def test_random_elements_come_again_from_the_same_numbers() -> None:
    """A shuffle buffer: the state of the generator when the epoch began is all that is needed."""

    def shuffled() -> Iterator[int]:
        left = list(range(10))
        while left:
            yield left.pop(random.randrange(len(left)))

    state = random.getstate()
    expected = rest(opened(shuffled()))
    random.setstate(state)
    one = opened(shuffled())
    one.run_up_to(Progress({}, {}, units=3, unit_size=2), None)
    assert rest(one) == expected[6:]


def test_the_board_says_that_it_is_run_again_and_that_it_goes_on() -> None:
    """No unit is in hand, whose samples could be blamed. Each step is another row: many quick ones are no hang."""
    row, rows = private_row(), list[tuple[int, int, int]]()

    def watched() -> Iterator[int]:
        while True:
            rows.append((row[PHASE], row[UNIT], row[SPAN]))
            yield 0

    def collate(samples: Any) -> None:
        rows.append((row[PHASE], row[UNIT], row[SPAN]))

    one = opened(watched(), row=row)
    one.run_up_to(Progress({}, {}, units=3, unit_size=1), collate)
    assert {phase for phase, _, _ in rows} == {Phase.REPLAY}
    assert all(unit < 0 for _, unit, _ in rows)
    assert len({unit for _, unit, _ in rows}) == 3
    one.fetch([None])
    assert rows[-1][0] == Phase.FETCH


def test_the_board_says_which_element_of_the_unit_is_in_hand() -> None:
    """Each is a sample of its own to a deadline."""
    row, seen = private_row(), list[tuple[int, int, int]]()

    def watched() -> Iterator[int]:
        while True:
            seen.append((row[PHASE], row[POSITION], row[SPAN]))
            yield 0

    one = opened(watched(), row=row)
    one.fetch([None, None])
    one.fetch([None])
    assert seen == [(Phase.FETCH, 0, 1), (Phase.FETCH, 1, 1), (Phase.FETCH, 0, 1)]


@pytest.mark.usefixtures("generators_restored")
def test_the_numbers_of_an_element_depend_on_worker_and_place_alone() -> None:
    """rng="sample": not on the size of units, nor on what else draws."""

    def numbers() -> Iterator[float]:
        while True:
            yield random.random()

    one, other = opened(numbers(), sample_seed=5), opened(numbers(), sample_seed=5)
    expected = one.fetch([None] * 6)
    random.seed(1)
    assert [*other.fetch([None] * 2), *other.fetch([None] * 4)] == expected
    assert set(opened(numbers(), sample_seed=6).fetch([None] * 6)).isdisjoint(expected)
