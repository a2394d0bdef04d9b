"""What a sample is made of: `tasks/scan/signature.py`. Without torch, which is only asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tasks.scan.signature import VARIES, Part, look_at, without_sizes


class Point(NamedTuple):
    x: float
    label: str


@dataclass
class Example:
    image: Any
    target: int


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class FakeTensor:
    """As torch's says what it is."""

    dtype, shape, nbytes = "torch.bfloat16", (2, 3), 12


@pytest.mark.parametrize(
    ("sample", "parts"),
    [
        (3, [("", "int", ())]),
        (None, [("", "None", ())]),
        (np.zeros((3, 4), np.float32), [("", "array float32", (3, 4))]),
        (np.float64(1), [("", "numpy float64", ())]),
        (FakeTensor(), [("", "FakeTensor bfloat16", (2, 3))]),
        ((np.zeros(2, np.int8), "cat"), [("[0]", "array int8", (2,)), ("[1]", "str", ())]),
        ({"y": 1, "x": 2.0}, [("['x']", "float", ()), ("['y']", "int", ())]),
        (Point(1.0, "a"), [(".x", "float", ()), (".label", "str", ())]),
        (Example(None, 3), [(".image", "None", ()), (".target", "int", ())]),
        ([1, 2, 3], [("", "list", (3,)), ("[*]", "int", ())]),
        ([], [("", "list", (0,))]),
        ([np.zeros((2, 4)), np.zeros((3, 4))], [("", "list", (2,)), ("[*]", "array float64", (VARIES, 4))]),
        ([np.zeros(2), 3], [("[0]", "array float64", (2,)), ("[1]", "int", ())]),
        ((), [("", "tuple", (0,))]),
        (
            {"a": ([1], {"b": 2})},
            [("['a'][0]", "list", (1,)), ("['a'][0][*]", "int", ()), ("['a'][1]['b']", "int", ())],
        ),
    ],
)
def test_the_parts_of_a_sample(sample: Any, parts: list[tuple[str, str, tuple[int, ...]]]) -> None:
    """Each with the path to it, its kind and its sizes."""
    assert list(look_at(sample).parts) == [Part(*part) for part in parts]


def test_an_object_that_raises_whatever_is_asked_of_it_is_named_by_its_type() -> None:
    """A look never raises: what a sample is may be anybody's guess, but it was loaded."""
    assert look_at(Hostile()).parts == (Part("", "Hostile"),)
    assert look_at((1, Hostile())).parts == (Part("[0]", "int"), Part("[1]", "Hostile"))


def test_an_image_of_pillow_has_a_mode_and_a_size() -> None:
    """A grey one among colours is odd."""
    image = pytest.importorskip("PIL.Image").new("L", (4, 2))
    assert look_at(image) == ((Part("", "image L", (4, 2)),), 8)


def test_the_size_is_that_of_all_parts() -> None:
    """Of a long list it is reckoned from the first items."""
    assert look_at((np.zeros(1000), "x" * 500)).nbytes == 8500
    assert look_at([b"12345"] * 100_000).nbytes > 500_000


def test_a_sample_that_holds_itself_is_looked_at_no_deeper_than_so_far() -> None:
    """And one with very many parts no further."""
    deep: dict[str, Any] = {}
    deep["self"] = deep
    assert len(look_at(deep).parts) == 1
    assert len(look_at([[[1, "a"] * 30] * 2 + [1]] * 60 + [1]).parts) <= 256


def test_without_sizes_only_the_dimensions_are_left() -> None:
    """So that very many different ones become one."""
    assert without_sizes((Part("", "array int8", (3, 4)),)) == (Part("", "array int8", (VARIES, VARIES)),)


things = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
)


@given(things)
def test_anything_can_be_looked_at(sample: Any) -> None:
    """Twice with the same result, and no path twice."""
    look = look_at(sample)
    assert look == look_at(sample)
    assert len({part.path for part in look.parts}) == len(look.parts)
    assert look.nbytes >= 0
