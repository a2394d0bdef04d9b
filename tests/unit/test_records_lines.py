"""One line of a record: whatever is put in, it is JSON, within bounds, and comes back."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.lines import MAX_LINE_BYTES, cut, decode, encode, plain

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.tuples(st.integers()), inner, max_size=5)
        | st.frozensets(st.integers(), max_size=5)
    ),
    max_leaves=30,
)


class Cause(StrEnum):
    HUNG = "hung"


@given(entry=st.dictionaries(st.text(max_size=20), anything, max_size=8), max_bytes=st.integers(100, 5000))
def test_whatever_is_put_in_is_one_line_within_its_bound(entry: dict[str, Any], max_bytes: int) -> None:
    """Of any shape: ends of lines in texts, surrogates, infinities, objects in objects."""
    line = encode({**entry, "kind": "incident"}, max_bytes)
    assert len(line) <= max_bytes
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    decoded = decode(line)
    assert decoded is not None
    assert decoded["kind"] == "incident"


def test_what_json_can_say_comes_back_as_it_was() -> None:
    """Texts with line ends and surrogates, numbers, containers."""
    text = "a\nb\udcff\x00é😀"
    entry = {"kind": "x", "text": text, "n": -3, "r": 0.25, "l": [1, [None, True]], "d": {"a": {"b": 1}}}
    assert decode(encode(entry)) == entry


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1 << 5000, "<int of 5001 bits>"),
        (Cause.HUNG, "hung"),
        ((1, "x"), [1, "x"]),
        ({1: "x", (2,): "y"}, {"1": "x", "<tuple>": "y"}),
        (b"secret", "<bytes>"),
        (np.arange(3), "<ndarray>"),
        (Path("/x"), "<PosixPath>"),
        ([[[[[[["deep"]]]]]]], [[[[[["<list>"]]]]]]),
    ],
    ids=repr,
)
def test_what_json_cannot_say_is_said_otherwise(value: object, said: object) -> None:
    """Numbers of numpy are numbers; an object is its type's name, for it may hold a sample."""
    assert plain(value) == said


def test_a_long_text_is_cut_in_the_middle_with_a_mark() -> None:
    """A traceback says most at its ends."""
    text = "first" + "x" * 1000 + "last"
    short = cut(text, 100)
    assert short.startswith("firstx")
    assert short.endswith("xlast")
    assert " [... 909 characters cut ...] " in short
    assert cut("short", 100) == "short"


def test_long_containers_say_how_much_is_missing() -> None:
    """In the place of the rest."""
    assert plain([1, 2, 3, 4], most=2) == [1, 2, "[... 2 more ...]"]
    assert plain({"a": 1, "b": 2, "c": 3}, most=2) == {"a": 1, "b": 2, "...": "1 more"}


def test_many_long_texts_get_shorter_until_the_line_fits() -> None:
    """No field is lost."""
    entry = {"kind": "incident", **{f"text{n}": "é" * 100_000 for n in range(20)}}
    line = encode(entry)
    decoded = json.loads(line)
    assert len(line) <= MAX_LINE_BYTES
    assert decoded.keys() == entry.keys()
    assert "characters cut" in decoded["text19"]


def test_what_cannot_be_made_to_fit_says_so() -> None:
    """Only what kind of line it was is left."""
    huge = {str(n): {str(m): [1] * 100 for m in range(100)} for n in range(100)}
    known = {"kind": "incident", "number": 3}
    assert decode(encode({**known, **huge}, 200)) == {**known, "cut": True}


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"7", b"{}", b'{"kind":7}', b"\xff\xfe", b"\x00", b"[" * 100_000, b"1" * 5000], ids=len
)
def test_what_is_not_a_line_of_ours_is_none(line: bytes) -> None:
    """Without an error."""
    assert decode(line) is None
