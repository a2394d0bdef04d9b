"""A shared list reads as the list it was made of, and cannot be written."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections import namedtuple
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import NotPicklable, share
from holdfast.sharing.lists import SharedList

Pair = namedtuple("Pair", "left right")  # at the top level, so that it pickles by name

texts = st.text(st.characters(exclude_categories=()))  # surrogates too: os.fsdecode makes such
numbers = st.integers(-300, 300)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)
lists = st.one_of(
    st.lists(numbers),
    st.lists(st.integers()),
    st.lists(st.floats(allow_nan=False)),
    st.lists(st.booleans()),
    st.lists(texts),
    st.lists(st.binary()),
    st.lists(anything),
)


@given(lists)
@example([2**63 - 1, -(2**63)])
@example([2**63])
@example([1, True, 1.0])
@example(["\udcff", "\U0001f600", ""])
def test_a_shared_list_has_the_items_of_the_list_in_order(items: list[Any]) -> None:
    """Whatever they are: values, types, length, forwards and backwards."""
    shared = share(items)
    assert isinstance(shared, SharedList)
    assert isinstance(shared, Sequence)
    assert [(type(item), item) for item in shared] == [(type(item), item) for item in items]
    assert list(reversed(shared)) == items[::-1]
    assert len(shared) == len(items)
    assert bool(shared) == bool(items)


@given(lists, st.data())
def test_indices_and_slices_give_what_they_give_of_the_list(items: list[Any], data: st.DataObject) -> None:
    """Negative ones too; a slice of a slice; what is out of range is an IndexError."""
    shared = share(items)
    part = data.draw(st.slices(len(items)))
    again = data.draw(st.slices(len(items[part])))
    assert shared[part] == items[part]
    assert list(shared[part][again]) == items[part][again]
    for index in range(-len(items), len(items)):
        assert shared[index] == items[index]
    for index in (len(items), -len(items) - 1):
        with pytest.raises(IndexError, match="list index out of range"):
            shared[index]


@given(lists, lists)
def test_equality_is_that_of_the_lists(one: list[Any], other: list[Any]) -> None:
    """With a list on either side, and with another shared list."""
    shared, shared_other = share(one), share(other)
    assert (shared == other) == (other == shared) == (shared == shared_other) == (one == other)
    assert shared == one
    assert shared != tuple(one)


@given(lists, st.data())
def test_searching_is_that_of_the_list(items: list[Any], data: st.DataObject) -> None:
    """`in`, index() and count()."""
    shared = share(items)
    for item in [*items[:3], data.draw(anything)]:
        assert (item in shared) == (item in items)
        assert shared.count(item) == items.count(item)
        if item in items:
            assert shared.index(item) == items.index(item)


@given(lists, lists)
def test_adding_gives_a_plain_list(one: list[Any], other: list[Any]) -> None:
    """From either side, and of two shared ones."""
    for joined in (share(one) + other, one + share(other), share(one) + share(other)):
        assert type(joined) is list
        assert joined == one + other


@given(lists)
def test_pickled_to_a_file_it_is_a_plain_list(items: list[Any]) -> None:
    """By value, in every protocol."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        loaded = pickle.loads(pickle.dumps(share(items), protocol))
        assert type(loaded) is list
        assert loaded == items


def test_numpy_integers_are_indices() -> None:
    """As samplers hand them out."""
    shared = share(["a", "b", "c"])
    assert shared[np.int64(1)] == "b"
    assert shared[np.int64(-1)] == "c"


def test_what_is_no_index_is_a_type_error() -> None:
    """As with a list."""
    with pytest.raises(TypeError):
        share([1, 2])["a"]


def test_not_a_number_stays_one() -> None:
    """It is not equal to itself, so it is looked for by value alone."""
    assert math.isnan(share([math.nan])[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.__setitem__(0, 1),
        lambda x: x.__delitem__(0),
        lambda x: x.append(1),
        lambda x: x.extend([1]),
        lambda x: x.insert(0, 1),
        lambda x: x.remove("a"),
        lambda x: x.pop(),
        lambda x: x.clear(),
        lambda x: x.sort(),
        lambda x: x.sort(key=len),
        lambda x: x.reverse(),
        lambda x: x.__iadd__([1]),
        lambda x: x.__imul__(2),
    ],
)
def test_a_write_is_a_clear_error(change: Any) -> None:
    """It says that the list is shared, and how to get one that can be changed. Nothing is changed."""
    shared = share(["a", "b"])
    with pytest.raises(TypeError, match=r"a shared list cannot be changed.*\n  try   own = list\(shared\)"):
        change(shared)
    assert shared == ["a", "b"]


def test_a_shared_list_has_no_hash() -> None:
    """As a list has none."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(share([1]))


def test_an_item_is_a_new_object_each_time() -> None:
    """So what is done to one is not seen by anybody, and reading writes no reference counts."""
    shared = share([{"label": 1}, {"label": 2}])
    shared[0]["label"] = 5
    assert shared[0] == {"label": 1}


def test_a_copy_is_free_and_copy_gives_a_list() -> None:
    """It cannot change, so `copy` and `deepcopy` of what holds it need not copy it."""
    shared = share([1, 2])
    assert copy.copy(shared) is shared
    assert copy.deepcopy({"a": shared})["a"] is shared
    assert type(shared.copy()) is list


def test_arrays_in_a_list_are_read_only_views() -> None:
    """Not copied when they are asked for, whatever they are in."""
    shared = share([{"x": np.arange(1000), "y": (np.ones((3, 100)).T,)}, np.arange(3)])
    first, again = shared[0], shared[0]
    assert np.shares_memory(first["x"], again["x"])
    assert np.shares_memory(first["y"][0], again["y"][0])
    assert np.array_equal(first["y"][0], np.ones((100, 3)))
    assert np.array_equal(shared[1], [0, 1, 2])
    for array in (first["x"], first["y"][0], shared[1]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_arrays_that_lie_apart_are_put_together() -> None:
    """Only what a view shows is shared, not what it is a view of."""
    whole = np.arange(100_000)
    shared = share([whole[::100], np.array(["1970-01-02"], "M8[D]"), np.array([None, "x"])])
    assert np.array_equal(shared[0], whole[::100])
    assert shared[1][0] == np.datetime64("1970-01-02")
    assert shared[2].tolist() == [None, "x"]


def test_instances_of_any_class_come_back_as_such() -> None:
    """Of the very class, pickled by name where that can be."""
    shared = share([Pair(1, 2), Fraction(1, 3)])
    assert type(shared[0]) is Pair
    assert list(shared) == [Pair(1, 2), Fraction(1, 3)]


def test_instances_of_a_local_class_come_back_as_such() -> None:
    """A class that no other process can import travels by value, and is itself here."""

    class Local:
        def __init__(self) -> None:
            self.value = 3

    shared = share([Local()])
    assert isinstance(shared[0], Local)
    assert shared[0].value == 3


def test_what_cannot_be_pickled_is_named() -> None:
    """By its path from what was shared, with what to do about it."""
    with pytest.raises(NotPicklable, match=r"obj\[1\]\['a'\]\[0\] cannot be shared: _thread.lock object") as caught:
        share([1, {"a": [threading.Lock()]}])
    assert caught.value.path == "obj[1]['a'][0]"
    assert "\n  try   " in str(caught.value)


def test_repr_is_short() -> None:
    """However many items there are, and however long they are."""
    assert repr(share([1, 2])) == "SharedList([1, 2])"
    assert repr(share(list(range(10_000)))) == "SharedList([0, 1, 2, ... 10000 items])"
    assert len(repr(share(["x" * 10_000] * 10))) < 200


def test_a_list_of_small_numbers_takes_a_byte_for_each() -> None:
    """The narrowest type that holds them all."""
    shared = share([index % 100 for index in range(100_000)])
    assert shared.source.segment.handle.nbytes == 100_000


def test_many_items_take_many_flushes() -> None:
    """More than is kept in memory at once, with arrays in between."""
    items = [{"name": "n" * 1000, "index": index, "x": np.full(100, index)} for index in range(3000)]
    shared = share(items)
    for index in (0, 1, 999, 1500, 2999):
        assert shared[index]["index"] == index
        assert np.array_equal(shared[index]["x"], items[index]["x"])


def test_five_million_strings_are_few_bytes_each() -> None:
    """The characters, and four bytes for where they begin."""
    shared = share([f"{index:016x}" for index in range(5_000_000)])
    assert shared.source.segment.handle.nbytes < 20 * 5_000_000 + 1000
    for index in (0, 65_535, 65_536, 2_500_000, -1):
        assert shared[index] == f"{index % 5_000_000:016x}"


def test_a_local_class_is_there_once_for_all_items() -> None:
    """Not with every one of them."""

    class Local:
        pass

    shared = share([Local() for _ in range(1000)])
    assert shared.source.segment.handle.nbytes < 100_000
    assert {type(item) for item in shared} == {Local}
