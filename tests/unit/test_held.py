"""Units that are to be loaded alone: what waits for what, and that nothing waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.loader.held import Held


def test_nothing_is_held_back_as_long_as_none_is_to_be_alone() -> None:
    held = Held()
    assert not held.holds_back(3, alone=False)
    assert not held.is_busy


def test_a_unit_that_is_to_be_alone_waits_for_what_is_being_loaded() -> None:
    held = Held()
    assert held.holds_back(3, alone=True)
    assert held.next_unit([4, 5, 3]) is None
    assert held.next_unit([5, 3]) is None
    assert held.next_unit([3]) == 3  # what is left of it is of the worker that died


def test_what_comes_up_meanwhile_waits_until_it_is_done() -> None:
    held = Held()
    held.holds_back(3, alone=True)
    assert held.holds_back(5, alone=False)
    assert held.next_unit([]) == 3
    assert held.holds_back(7, alone=False)
    assert held.next_unit([3]) is None
    assert [held.next_unit([]) for _ in range(3)] == [5, 7, None]
    assert not held.is_busy


def test_one_that_dies_alone_is_alone_again() -> None:
    held = Held()
    held.holds_back(3, alone=True)
    assert held.next_unit([]) == 3
    assert held.holds_back(3, alone=True)
    assert held.next_unit([3]) == 3


def test_two_are_alone_one_after_the_other() -> None:
    held = Held()
    held.holds_back(3, alone=True)
    held.holds_back(4, alone=True)
    assert held.next_unit([3, 4]) == 3
    assert held.next_unit([3, 4]) is None
    assert held.next_unit([4]) == 4


def test_what_cannot_be_sent_yet_comes_first_again() -> None:
    """Of one worker, what comes after it would be loaded before it: of an iterable, from its elements."""
    held = Held()
    held.holds_back(3, alone=True)
    held.holds_back(4, alone=True)
    for unit in (5, 7):
        held.holds_back(unit, alone=False)
    for unit, after in ((3, [4]), (4, []), (5, []), (7, [])):
        assert held.next_unit(after) == unit
        held.put_back(unit)
        assert held.holds_back(unit, alone=unit < 5)
        assert held.next_unit(after) == unit
    assert not held.is_busy or held.next_unit([]) is None


def test_none_is_held_back_twice() -> None:
    held = Held()
    held.holds_back(3, alone=True)
    held.holds_back(3, alone=True)
    held.holds_back(5, alone=False)
    held.holds_back(5, alone=False)
    assert held.let_go() == [3, 5]
    assert not held.is_busy


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), unique_by=lambda each: each[0]),
    st.sets(st.integers(10, 15)),
)
def test_all_come_out_once_and_those_alone_with_nothing_beside_them(
    given: list[tuple[int, bool]], others: set[int]
) -> None:
    """Whatever is held back, in any order, beside whatever is being loaded."""
    held, loading, alone = Held(), set(others), {unit for unit, is_alone in given if is_alone}
    sent = [unit for unit, is_alone in given if not held.holds_back(unit, alone=is_alone)]
    loading |= set(sent)
    for _ in range(200):
        unit = held.next_unit(loading)
        if unit is None:
            if not loading:
                break
            loading.pop()
            continue
        running = loading - {unit}
        sent.append(unit)
        assert unit not in alone or not running
        loading.add(unit)
    assert not held.is_busy
    assert set(sent) == {unit for unit, _ in given}
