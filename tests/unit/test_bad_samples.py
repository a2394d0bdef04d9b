"""What becomes of a unit some of whose samples cannot be loaded: smaller, filled up, void, or an exception."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import TooManySkipped
from holdfast.loader.bad_samples import BadSample, BadSamples, Fate
from holdfast.loader.ledger import Blame, Ledger
from holdfast.loader.policy import Policy
from holdfast.loader.supply import Supply
from holdfast.loader.units import UnitState, dump_indices

HISTORY = 256


def made(on_error: str, *, ahead: int = 0, **arguments: Any) -> tuple[BadSamples, Ledger]:
    ledger = Ledger(Policy(on_error, **arguments), range(1000))
    bad = BadSamples(ledger, ahead=ahead)
    bad.begin_epoch(0, 7, 1000)
    return bad, ledger


def unit(indices: Any, first: int = 0, *, is_list: bool = True) -> UnitState:
    return UnitState(dump_indices(indices), (first,), is_list, worker_id=0)


def lost(*positions: int, blame: Blame = Blame.ITSELF) -> list[BadSample]:
    return [BadSample(position, f"reason {position}", blame) for position in positions]


def skipped(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [(sample.index, sample.replaced_by) for sample in ledger.skipped]


# --- "raise" ----------------------------------------------------------------------------------------------------------


def test_with_raise_the_unit_becomes_an_exception() -> None:
    """It is not changed, and nothing is written down."""
    bad, ledger = made("raise")
    state = unit([10, 11])
    assert bad.screen(0, state) is Fate.AGAIN
    assert bad.give_up(0, state, lost(1)) is Fate.RAISE
    assert bad.give_up_batch(0, state, "r") is Fate.RAISE
    assert state.indices == [10, 11]
    assert ledger.skipped == []


# --- "skip" -----------------------------------------------------------------------------------------------------------


def test_with_skip_the_unit_asks_for_the_others_at_their_old_places() -> None:
    """Random numbers by place stay the same for those that are left."""
    bad, ledger = made("skip")
    state = unit([10, 11, 12, 13], first=40)
    assert bad.give_up(5, state, lost(1)) is Fate.AGAIN
    assert (state.indices, state.places) == ([10, 12, 13], (40, 42, 43))
    assert bad.give_up(5, state, lost(0, 2)) is Fate.AGAIN
    assert (state.indices, state.places) == ([12], (42,))
    assert skipped(ledger) == [(11, None), (10, None), (13, None)]
    assert {(sample.epoch, sample.batch) for sample in ledger.skipped} == {(0, 5)}


@pytest.mark.timeout(30)
def test_with_skip_a_batch_of_65536_that_cannot_be_made_is_given_up_in_no_time() -> None:
    """To look each index up among the others by a search would take an hour."""
    bad, ledger = made("skip", max_skipped=None)
    assert bad.give_up_batch(0, unit(list(range(65_536))), "r") is Fate.VOID
    assert len(ledger.skipped) == 65_536


def test_with_skip_a_unit_that_loses_every_sample_is_void() -> None:
    """All are written down."""
    bad, ledger = made("skip")
    assert bad.give_up(0, unit([10, 11]), lost(0, 1)) is Fate.VOID
    assert skipped(ledger) == [(10, None), (11, None)]


def test_without_batches_a_sample_that_is_skipped_is_the_whole_unit() -> None:
    """batch_size=None: its index may be anything."""
    bad, ledger = made("skip")
    assert bad.give_up(0, unit((10, 11), is_list=False), lost(0)) is Fate.VOID
    assert skipped(ledger) == [((10, 11), None)]


def test_what_is_known_to_be_bad_is_not_asked_for() -> None:
    """In the next epoch, or in this one again."""
    bad, ledger = made("skip")
    bad.give_up(0, unit([10, 11]), lost(1))
    bad.begin_epoch(1, 7, 1000)
    state = unit([11, 12, 11, 10])
    assert bad.screen(3, state) is Fate.AGAIN
    assert (state.indices, state.places) == ([12, 10], (1, 3))
    assert [(sample.index, sample.reason, sample.epoch) for sample in ledger.skipped[1:]] == [(11, "reason 1", 1)] * 2
    assert bad.screen(4, unit([11])) is Fate.VOID


def test_a_unit_of_good_samples_is_not_touched() -> None:
    """Its pickle is the sampler's own."""
    bad, _ = made("skip")
    bad.give_up(0, unit([10, 11]), lost(1))
    state = unit([1, 2])
    before = state.payload
    assert bad.screen(1, state) is Fate.AGAIN
    assert state.payload is before


@pytest.mark.parametrize(("blame", "is_known"), [(Blame.ITSELF, True), (Blame.PERHAPS, True), (Blame.NOBODY, False)])
def test_who_is_not_to_blame_is_asked_for_again(blame: Blame, is_known: bool) -> None:
    """Next time its batch may be another."""
    bad, _ = made("skip")
    bad.give_up(0, unit([10, 11]), lost(1, blame=blame))
    state = unit([11, 12])
    bad.screen(1, state)
    assert state.indices == ([12] if is_known else [11, 12])


def test_a_batch_that_cannot_be_made_is_skipped_as_a_whole() -> None:
    """All its indices are listed, and none is remembered."""
    bad, ledger = made("skip")
    assert bad.give_up_batch(0, unit([10, 11]), "its batch: ValueError") is Fate.VOID
    assert skipped(ledger) == [(10, None), (11, None)]
    assert not ledger.known


def test_elements_of_an_iterable_are_written_down_by_their_place_in_the_stream() -> None:
    """Worker and element: they have no index."""
    bad, ledger = made("skip")
    bad.note_element(2, (1, 33), BadSample(0, "r"))
    assert [(sample.index, sample.batch) for sample in ledger.skipped] == [((1, 33), 2)]


# --- "replace" --------------------------------------------------------------------------------------------------------


def test_with_replace_another_sample_of_the_batch_stands_in_the_same_place() -> None:
    """Size and places are kept; what was replaced, and by what, is written down."""
    bad, ledger = made("replace")
    state = unit([10, 11, 12], first=40)
    bad.screen(0, state)
    assert bad.give_up(0, state, lost(1)) is Fate.AGAIN
    assert (state.indices[0], state.indices[2], state.places) == (10, 12, (40, 41, 42))
    assert state.indices[1] in (10, 12)
    assert skipped(ledger) == [(11, state.indices[1])]


def test_a_substitute_is_never_known_to_be_bad_nor_given_up_at_the_same_time() -> None:
    """Three of four are bad: the fourth stands for all."""
    bad, _ = made("replace")
    bad.give_up(0, unit([5, 10]), lost(1))
    state = unit([10, 11, 12, 13])
    assert bad.screen(1, state) is Fate.AGAIN
    bad.give_up(1, state, lost(*(k for k, index in enumerate(state.indices) if index in (11, 12))))
    assert state.indices == [13, 13, 13, 13]


def test_a_batch_without_good_samples_is_filled_from_those_before_it() -> None:
    """Of this epoch, as the sampler gave them."""
    bad, _ = made("replace")
    for k in range(10):
        bad.screen(k, unit([2 * k, 2 * k + 1], first=2 * k))
    state = unit([90, 91], first=10)
    bad.screen(10, state)
    assert bad.give_up(10, state, lost(0, 1)) is Fate.AGAIN
    assert set(state.indices) <= set(range(10))


def test_the_first_batch_is_filled_from_those_after_it() -> None:
    """There are none before it."""
    bad, _ = made("replace")
    first = unit([90, 91], first=0)
    for k, state in enumerate([first, unit([1, 2], first=2), unit([3, 4], first=4)]):
        bad.screen(k, state)
    assert bad.give_up(0, first, lost(0, 1)) is Fate.AGAIN
    assert set(first.indices) <= {1, 2, 3, 4}


def test_where_nothing_can_stand_for_a_sample_the_unit_is_an_exception() -> None:
    """And nothing is written down as replaced by what never came."""
    bad, ledger = made("replace")
    state = unit([10])
    bad.screen(0, state)
    assert bad.give_up(0, state, lost(0)) is Fate.RAISE
    assert state.indices == [10]
    assert ledger.skipped == []


def test_an_epoch_does_not_take_samples_from_the_one_before() -> None:
    """Another rank's sampler may have them now."""
    bad, _ = made("replace")
    bad.screen(0, unit([1, 2], first=0))
    bad.begin_epoch(1, 7, 1000)
    state = unit([90], first=5)
    bad.screen(0, state)
    assert bad.give_up(0, state, lost(0)) is Fate.RAISE


@pytest.mark.parametrize("ahead", [0, 1, 50])
def test_what_was_sent_since_does_not_change_the_choice(ahead: int) -> None:
    """How many units are under way when a sample turns out to be bad is a matter of timing."""
    chosen = set()
    for sent_since in {0, ahead // 2, ahead}:
        bad, _ = made("replace", ahead=ahead)
        states = [unit([k], first=k) for k in range(HISTORY + 20 + sent_since)]
        for k, state in enumerate(states):
            bad.screen(k, state)
        suspect = states[HISTORY + 19]
        bad.give_up(0, suspect, lost(0))
        chosen.add(suspect.indices[0])
    assert len(chosen) == 1


def test_a_batch_that_cannot_be_made_is_replaced_as_a_whole_and_once() -> None:
    """By samples of other batches; if these make no batch either, it is an exception."""
    bad, ledger = made("replace")
    bad.screen(0, unit([1, 2, 3], first=0))
    state = unit([10, 11], first=3)
    bad.screen(1, state)
    assert bad.give_up_batch(1, state, "r") is Fate.AGAIN
    assert set(state.indices) <= {1, 2, 3}
    assert not ledger.known
    assert bad.give_up_batch(1, state, "r") is Fate.RAISE


def test_indices_that_do_not_compare_are_replaced_too() -> None:
    """batch_size=None, and an array of indices for each batch."""
    bad, ledger = made("replace")
    bad.screen(0, unit(np.array([1, 2]), is_list=False))
    state = unit(np.array([3, 4]), first=1, is_list=False)
    bad.screen(1, state)
    assert bad.give_up(1, state, lost(0)) is Fate.AGAIN
    assert state.indices.tolist() == [1, 2]
    assert ledger.skipped[0].index.tolist() == [3, 4]


def test_the_choice_is_another_in_another_epoch() -> None:
    """In the long run."""
    chosen = set()
    for epoch in range(30):
        bad, _ = made("replace")
        bad.begin_epoch(epoch, 7, 1000)
        state = unit(list(range(100)))
        bad.screen(0, state)
        bad.give_up(0, state, lost(50))
        chosen.add(state.indices[50])
    assert len(chosen) > 10


def test_a_substitute_has_attempts_of_its_own() -> None:
    """The deaths at the sample before it are not counted against it."""
    bad, _ = made("replace")
    state = unit([10, 11], first=40)
    bad.screen(0, state)
    state.deaths.update({40: 1, 41: 2})
    bad.give_up(0, state, lost(1))
    assert state.deaths == {40: 1}


def test_the_choice_among_later_samples_does_not_depend_on_how_many_were_sent() -> None:
    """Those yet to be sent are candidates as well, in the order of the sampler."""
    chosen = set()
    for sent in range(5):
        bad, ledger = made("replace")
        ledger.known.add(92, "r")
        bad.supply = Supply(iter([[90, 91], [92], [4, 5, 6], [7], [8]]), auto_collation=True)
        states = [send_next(bad) for _ in range(1 + sent)]
        assert bad.give_up(0, states[0], lost(0, 1)) is Fate.AGAIN
        chosen.add(tuple(states[0].indices))
    assert len(chosen) == 1
    assert set(*chosen) <= {4, 5, 6}


def send_next(bad: BadSamples) -> UnitState:
    assert bad.supply is not None
    state = bad.supply.peek()
    assert state is not None
    bad.supply.taken()
    bad.screen(0, state)
    return state


def test_there_is_an_end_to_substitutes_that_cannot_be_loaded() -> None:
    """Sixteen for one place, and each another, though an index that is a list cannot be remembered."""
    bad, ledger = made("replace")
    states = [unit([k], first=k, is_list=False) for k in range(30)]
    for k, state in enumerate(states):
        bad.screen(k, state)
    fates = [bad.give_up(29, states[-1], lost(0)) for _ in range(17)]
    assert [sample.index for sample in ledger.skipped] == [[29]]  # one entry for the place, whatever was tried in it
    assert fates == [Fate.AGAIN] * 16 + [Fate.RAISE]


@given(
    indices=st.lists(st.integers(0, 12), min_size=2, max_size=8),
    others=st.lists(st.integers(0, 12), max_size=6),
    broken=st.sets(st.integers(0, 12)),
    data=st.data(),
)
def test_the_batch_in_the_end_is_the_same_in_whatever_order_bad_samples_are_found(
    indices: list[int], others: list[int], broken: set[int], data: st.DataObject
) -> None:
    """Some known before, some raised together, some each by the death of a worker."""
    known = [set(), data.draw(st.sets(st.sampled_from(sorted(broken)))) if broken else set(), broken]
    outcomes = [outcome(indices, others, broken, before, together) for before in known for together in (True, False)]
    assert outcomes == [outcomes[0]] * len(outcomes)


def outcome(
    indices: Sequence[int], others: Sequence[int], broken: set[int], known: set[int], together: bool
) -> list[int] | None:
    bad, ledger = made("replace")
    for index in known:
        ledger.known.add(index, "r")
    if others:
        bad.screen(0, unit(list(others), first=0))
    state = unit(list(indices), first=len(others))
    fate = bad.screen(1, state)
    while fate is Fate.AGAIN:
        found = [k for k, index in enumerate(state.indices) if index in broken]
        if not found:
            return list(state.indices)
        fate = bad.give_up(1, state, lost(*(found if together else found[:1])))
    return None


# --- max_skipped ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_every_sample_that_is_passed_over_counts(on_error: str) -> None:
    """However it was, in each epoch anew."""
    bad, ledger = made(on_error, max_skipped=2)
    for epoch in range(2):
        bad.begin_epoch(epoch, 7, None)
        state = unit([*range(10 * epoch, 10 * epoch + 10)])
        bad.give_up(0, state, lost(0))
        bad.note_element(0, (0, epoch), BadSample(0, "r"))
        with pytest.raises(TooManySkipped, match=r"^3 samples"):
            bad.give_up(0, unit([*range(100, 110)], first=10), lost(epoch))
    assert len(ledger.skipped) == 6
