"""A shared dict reads as the dict it was made of, and cannot be written."""

from __future__ import annotations

import copy
import enum
import pickle
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import NotPicklable, share
from holdfast.sharing.dicts import SharedDict
from holdfast.sharing.key_index import stable_hash
from waits import PATIENCE_S


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


texts = st.text(st.characters(exclude_categories=()))
simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary()
keys = st.one_of(texts, st.integers(), simple, st.tuples(simple, simple), st.sampled_from(Colour))
dicts = st.dictionaries(keys, st.integers() | texts)


@given(dicts)
def test_a_shared_dict_has_the_entries_of_the_dict_in_order(entries: dict[Any, Any]) -> None:
    """Keys, values, items, length, forwards and backwards."""
    shared = share(entries)
    assert isinstance(shared, SharedDict)
    assert isinstance(shared, Mapping)
    assert list(shared) == list(shared.keys()) == list(entries)
    assert list(shared.values()) == list(entries.values())
    assert list(shared.items()) == list(entries.items())
    assert list(reversed(shared)) == list(reversed(entries))
    assert list(reversed(shared.values())) == list(reversed(entries.values()))
    assert list(reversed(shared.items())) == list(reversed(entries.items()))
    assert len(shared) == len(entries)
    assert bool(shared) == bool(entries)


@given(dicts, st.lists(keys))
def test_a_key_is_found_where_the_dict_finds_it(entries: dict[Any, Any], others: list[Any]) -> None:
    """By `[]`, get() and `in`; and what is not there is a KeyError that names it."""
    shared = share(entries)
    for key in (*entries, *others):
        assert (key in shared) == (key in entries)
        assert shared.get(key, "nothing") == entries.get(key, "nothing")
        if key not in entries:
            with pytest.raises(KeyError):
                shared[key]


@given(dicts, dicts)
def test_equality_and_union_are_those_of_the_dicts(one: dict[Any, Any], other: dict[Any, Any]) -> None:
    """With a dict on either side, and with another shared dict."""
    shared = share(one)
    assert (shared == other) == (other == shared) == (shared == share(other)) == (one == other)
    assert shared == one
    assert shared | other == one | other
    assert other | shared == other | one
    assert {**shared} == dict(shared) == one


@given(dicts)
def test_pickled_to_a_file_it_is_a_plain_dict(entries: dict[Any, Any]) -> None:
    """By value."""
    loaded = pickle.loads(pickle.dumps(share(entries)))
    assert type(loaded) is dict
    assert list(loaded.items()) == list(entries.items())


@pytest.mark.parametrize("key", [1, 1.0, True, Decimal(1), Fraction(1), np.int64(1), np.float32(1), 1 + 0j])
def test_equal_numbers_are_the_same_key(key: Any) -> None:
    """Whatever their type, as in a dict."""
    assert share({1: "one", 2: "two"})[key] == "one"
    assert share({(1, "a"): "one"})[(key, "a")] == "one"


def test_text_of_other_types_is_the_same_key() -> None:
    """numpy's, for one."""
    assert share({"a": 1})[np.str_("a")] == 1


def test_keys_that_are_alike_do_not_fall_together() -> None:
    """Multiples of a large power of two, as addresses are."""
    entries = {index << 20: index for index in range(4096)}
    shared = share(entries)
    assert all(shared[key] == value for key, value in entries.items())
    firsts = shared._rows._firsts
    assert max(firsts[at + 1] - firsts[at] for at in range(len(firsts) - 1)) < 20


def test_the_hash_of_a_key_is_the_same_in_every_process() -> None:
    """Python's own hash of a text is not."""
    program = "from holdfast.sharing.key_index import stable_hash; print(stable_hash(('a', b'b', 1.5, None, True)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=PATIENCE_S)
    assert int(done.stdout) == stable_hash(("a", b"b", 1.5, None, True))


def test_what_cannot_be_a_key_is_a_type_error() -> None:
    """As with a dict."""
    with pytest.raises(TypeError, match="unhashable"):
        share({"a": 1})[[]]  # type: ignore[index]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.__setitem__("a", 1),
        lambda x: x.__delitem__("a"),
        lambda x: x.update(a=1),
        lambda x: x.setdefault("b", 1),
        lambda x: x.pop("a"),
        lambda x: x.popitem(),
        lambda x: x.clear(),
        lambda x: x.__ior__({"b": 1}),
    ],
)
def test_a_write_is_a_clear_error(change: Any) -> None:
    """It says that the dict is shared, and how to get one that can be changed. Nothing is changed."""
    shared = share({"a": 0})
    with pytest.raises(TypeError, match=r"a shared dict cannot be changed.*\n  try   own = dict\(shared\)"):
        change(shared)
    assert shared == {"a": 0}


def test_a_shared_dict_has_no_hash() -> None:
    """As a dict has none."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(share({}))


def test_a_copy_is_free_and_copy_gives_a_dict() -> None:
    """It cannot change, so `copy` and `deepcopy` of what holds it need not copy it."""
    shared = share({"a": 1})
    assert copy.copy(shared) is shared
    assert copy.deepcopy([shared])[0] is shared
    assert type(shared.copy()) is dict


def test_repr_is_short() -> None:
    """However many entries there are."""
    assert repr(share({"a": 1})) == "SharedDict({'a': 1})"
    assert repr(share(dict.fromkeys(range(1000), 0))) == "SharedDict({0: 0, 1: 0, 2: 0, ... 1000 entries})"


def test_what_cannot_be_pickled_is_named_by_its_key() -> None:
    """So that it is found in a large dict."""
    entries: dict[str, Any] = {f"k{index}": index for index in range(50)}
    entries["bad"] = (value for value in ())
    with pytest.raises(NotPicklable, match=r"obj\['bad'\] cannot be shared: builtins.generator object"):
        share(entries)
