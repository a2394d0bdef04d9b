"""What becomes what: containers stay what they are, their bulk is shared, small things stay as they are."""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

from holdfast import share
from holdfast.sharing.arrays import find_array
from holdfast.sharing.blobs import SharedBytes
from holdfast.sharing.dicts import SharedDict
from holdfast.sharing.lists import SharedList


@dataclasses.dataclass
class Split:
    images: Any
    names: list[str]
    note: str = "n"
    lock: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    images: Any
    fold: int = dataclasses.field(default=3, init=False)


class Points(NamedTuple):
    x: Any
    y: Any


class Records(list[Any]):
    """A list with something to it."""


MANY = [f"name {index}" for index in range(100)]


def segment_of(array: np.ndarray[Any, Any]) -> str:
    found = find_array(array)
    assert found is not None
    return found[0].handle.id


def test_a_dict_that_holds_bulk_stays_a_dict() -> None:
    """Of few entries; each is shared, or stays as it is."""
    data = {"images": np.zeros(10), "names": MANY, "classes": ["cat", "dog"], "fold": 3, "blob": b"x" * 2000}
    shared = share(data)
    assert type(shared) is dict
    assert list(shared) == list(data)
    assert find_array(shared["images"])
    assert isinstance(shared["names"], SharedList)
    assert isinstance(shared["blob"], SharedBytes)
    assert shared["classes"] is data["classes"]
    assert type(data["names"]) is list, "the original is as it was"


def test_a_dict_of_many_entries_becomes_a_shared_dict_whatever_it_holds() -> None:
    """Arrays in it are views all the same."""
    shared = share({f"k{index}": np.full(100, index) for index in range(17)})
    assert isinstance(shared, SharedDict)
    assert find_array(shared["k3"])
    assert type(share({f"k{index}": np.full(100, index) for index in range(16)})) is dict


def test_what_was_asked_for_is_shared_however_small() -> None:
    """A short list or dict becomes a shared one, so that what can be done with it does not depend on its length."""
    assert isinstance(share([1]), SharedList)
    assert isinstance(share({"a": 1}), SharedDict)
    assert isinstance(share(b"a"), SharedBytes)


def test_tuples_stay_tuples_and_named_ones_named() -> None:
    """Their members are shared in turn."""
    array = np.arange(10)
    plain, named = share((array, 1, "a")), share(Points(array, MANY))
    assert type(plain) is tuple
    assert find_array(plain[0])
    assert plain[1:] == (1, "a")
    assert type(named) is Points
    assert find_array(named.x)
    assert isinstance(named.y, SharedList)


def test_a_dataclass_stays_one_and_is_not_made_anew() -> None:
    """Frozen, with slots, with fields that are no arguments: its `__init__` is not called. What is no data stays."""
    split = Split(np.arange(10), MANY, lock=threading.Lock())
    shared = share(split)
    assert type(shared) is Split
    assert shared is not split
    assert find_array(shared.images)
    assert isinstance(shared.names, SharedList)
    assert shared.lock is split.lock
    assert not find_array(split.images)
    frozen = Frozen(np.arange(3))
    object.__setattr__(frozen, "fold", 5)
    assert find_array(share(frozen).images)
    assert share(frozen).fold == 5


def test_dicts_with_something_to_them_keep_it() -> None:
    """OrderedDict, defaultdict and the like, of few entries."""
    data = collections.defaultdict(list, a=np.arange(5))
    shared = share(data)
    assert type(shared) is collections.defaultdict
    assert shared["b"] == []
    assert find_array(shared["a"])


def test_everything_of_one_call_lies_in_one_segment() -> None:
    """However deep: one descriptor, one mapping."""
    shared = share({"a": np.arange(10), "b": (np.arange(5), {"c": np.ones(3)}), "d": MANY})
    arrays = [shared["a"], shared["b"][0], shared["b"][1]["c"]]
    assert {segment_of(array) for array in arrays} == {shared["d"].source.segment.handle.id}


def test_what_is_there_twice_is_shared_once() -> None:
    """And is one thing again."""
    array = np.zeros(100_000)
    shared = share({"a": array, "b": (array,), "c": MANY, "d": [MANY] * 17})
    assert shared["a"] is shared["b"][0]
    handle = shared["c"].source.segment.handle
    assert handle.nbytes < 1.5 * array.nbytes


def test_what_is_shared_is_not_shared_again() -> None:
    """Whatever it is in."""
    first = share({"a": np.arange(10), "b": MANY})
    second = share({**first, "c": np.arange(3)})
    assert second["a"] is first["a"]
    assert second["b"] is first["b"]
    assert segment_of(second["c"]) != segment_of(second["a"])
    assert share(first["b"]) is first["b"]
    assert share(first) is first, "there is nothing to be done"


@pytest.mark.parametrize("value", [None, 1, 1.5, "text", True, (), (1, "a"), b"", np.float32(3), np.zeros((0, 3))])
def test_small_things_stay_as_they_are(value: Any) -> None:
    """The very same objects."""
    assert share(value) is value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, r"obj \(builtins.set\) cannot be shared: there are no shared sets\n  try   holdfast.share\(dict.from"),
        (Records([1]), r"cannot be shared: it is more than a list\n  try   holdfast.share\(list\(obj\)\)"),
        (
            collections.Counter("abc"),
            r"cannot be shared: it is more than a dict\n  try   holdfast.share\(dict\(obj\)\)",
        ),
        (bytearray(b"abc"), r"cannot be shared: it can be changed\n  try   holdfast.share\(bytes\(obj\)\)"),
        (object(), r"cannot be shared: it is none of the kinds of data that can be\n  try   "),
        (Split, r"obj \(builtins.type\) cannot be shared"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_a_remedy(value: Any, message: str) -> None:
    """Rather than returned as if it were shared."""
    with pytest.raises(TypeError, match=message):
        share(value)


def test_errors_name_the_path() -> None:
    """Through dicts, tuples, dataclasses and lists."""
    bad = np.array([None])
    with pytest.raises(TypeError, match=r"^obj\['train'\]\.images\[1\] \(numpy.ndarray\) cannot be shared"):
        share({"train": Split((1, bad), MANY)})
    with pytest.raises(TypeError, match=r"^obj\['train'\]\.names\[0\] cannot be shared: _thread.lock object"):
        share({"train": Split(0, [threading.Lock(), *MANY])})


def test_what_contains_itself_is_refused() -> None:
    """Rather than walked through for ever."""
    data: dict[str, Any] = {"a": np.arange(3)}
    data["self"] = data
    with pytest.raises(TypeError, match="it contains itself"):
        share(data)
