"""Which sample takes the place of a bad one: the same whatever the timing, and never one that is known to be bad."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from holdfast.loader.substitutes import NONE_LEFT, choose

samples = st.integers(0, 30)
groups = st.lists(st.lists(samples, max_size=12), max_size=4)
seeds = st.integers(0, 2**64 - 1)
positions = st.integers(0, 2**40)


def among(bad: set[int]) -> Callable[[int], bool]:
    return lambda index: index in bad


@given(candidates=groups, bad=st.sets(samples), seed=seeds, position=positions)
def test_a_substitute_is_good_and_of_the_first_group_that_has_one(
    candidates: list[list[int]], bad: set[int], seed: int, position: int
) -> None:
    """The same batch first. There is none only if all are bad."""
    chosen = choose(candidates, among(bad), seed, position)
    good = [[index for index in group if index not in bad] for group in candidates]
    assert chosen in next((group for group in good if group), [NONE_LEFT])


@given(candidates=groups, bad=st.sets(samples), seed=seeds, position=positions)
def test_the_choice_depends_on_nothing_but_what_it_is_given(
    candidates: list[list[int]], bad: set[int], seed: int, position: int
) -> None:
    """The same again, and with tuples in the place of lists."""
    chosen = choose(candidates, among(bad), seed, position)
    assert choose(map(tuple, candidates), among(bad), seed, position) == chosen


@given(candidates=groups, bad=st.sets(samples), known=st.sets(samples), seed=seeds, position=positions)
def test_it_is_the_first_that_loads_whatever_was_known_before(
    candidates: list[list[int]], bad: set[int], known: set[int], seed: int, position: int
) -> None:
    """Trying one after the other, each that fails being known from then on, ends where full knowledge would have."""
    known &= bad
    while (tried := choose(candidates, among(known), seed, position)) is not NONE_LEFT and tried in bad:
        known = known | {tried}
    assert tried == choose(candidates, among(bad), seed, position)


@given(seed=seeds)
def test_places_that_need_one_do_not_all_get_the_same(seed: int) -> None:
    """A batch with many bad samples is not made of one good sample over and over."""
    batch = list(range(100))
    assert len({choose([batch], among(set()), seed, position) for position in range(100)}) > 20


@given(position=positions)
def test_another_seed_gives_another_choice(position: int) -> None:
    """In the long run."""
    batch = list(range(100))
    assert len({choose([batch], among(set()), seed, position) for seed in range(100)}) > 20


def test_without_candidates_there_is_none() -> None:
    """No groups, or empty ones."""
    assert choose([], among(set()), 0, 0) is NONE_LEFT
    assert choose([[], []], among(set()), 0, 0) is NONE_LEFT
