"""Whether two samples are the same: numbers, texts, arrays, containers, objects; and where they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from holdfast.tasks.examine.equality import describe, difference, has_cuda, size

NAN = float("nan")


class Pair(NamedTuple):
    image: Any
    label: int


@dataclass
class Record:
    image: Any
    label: int


class Plain:
    def __init__(self, image: Any) -> None:
        self.image = image


class Stubborn:
    def __eq__(self, other: object) -> bool:
        raise TypeError("never")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise TypeError("nor this")


ARRAY = np.arange(6.0).reshape(2, 3)
OTHER = ARRAY + (ARRAY == 5)

SAME = [
    (1, 1),
    ("a", "a"),
    (None, None),
    (NAN, NAN),
    (ARRAY, ARRAY.copy()),
    (np.array([NAN, 1]), np.array([NAN, 1])),
    (np.array(["a", "b"]), np.array(["a", "b"])),
    (np.datetime64("NaT"), np.datetime64("NaT")),
    (np.float32(1), np.float32(1)),
    ({"a": [ARRAY, 1]}, {"a": [ARRAY.copy(), 1]}),
    (Pair(ARRAY, 1), Pair(ARRAY.copy(), 1)),
    (Record(ARRAY, 1), Record(ARRAY.copy(), 1)),
    (Plain(ARRAY), Plain(ARRAY.copy())),
    ({1, 2}, {2, 1}),
    ([], []),
]
DIFFERENT = [
    (1, 2, "sample"),
    (1, 1.0, "sample"),
    (NAN, 1.0, "sample"),
    (ARRAY, OTHER, "sample"),
    (ARRAY, ARRAY[:1], "sample"),
    (ARRAY, ARRAY.astype("f4"), "sample"),
    ({"a": [ARRAY, 1]}, {"a": [OTHER, 1]}, "sample['a'][0]"),
    ({"a": 1}, {"b": 1}, "sample"),
    ([1, 2], [1], "sample"),
    (Pair(ARRAY, 1), Pair(ARRAY, 2), "sample[1]"),
    (Record(ARRAY, 1), Record(OTHER, 1), "sample.image"),
    (Plain(ARRAY), Plain(OTHER), "sample.image"),
    (Stubborn(), Stubborn(), "sample"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_these_are_the_same(first: Any, second: Any) -> None:
    assert difference(first, second) is None


@pytest.mark.parametrize(("first", "second", "where"), DIFFERENT)
def test_these_differ_and_it_is_said_where(first: Any, second: Any, where: str) -> None:
    assert difference(first, second) == where


def test_a_sample_that_contains_itself_has_an_end() -> None:
    """Deeper than anybody nests a sample, it is compared as a whole."""
    loop: list[Any] = []
    loop.append(loop)
    assert difference(loop, loop) in (None, "sample" + "[0]" * 20)
    assert size(loop) == 0
    assert not has_cuda(loop)


def test_the_size_of_a_sample_is_that_of_its_data() -> None:
    assert size({"image": ARRAY, "name": "abc", "more": (b"12", 7)}) == 48 + 3 + 2


def test_a_sample_is_described_in_a_few_words() -> None:
    assert describe((ARRAY, 3)) == "tuple of ndarray float64 2x3, int"
    assert describe({"a": np.float32(1)}) == "dict of float32 float32 scalar"
    assert describe(list(range(7))) == "list of int, int, int, int, int, ..."
    assert describe([]) == "empty list"
    assert describe("text") == "str"


def test_tensors_are_compared_as_tensors() -> None:
    """Also where a value is NaN, and where they are sparse or nested."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.0, NAN])
    assert difference(tensor, tensor.clone()) is None
    assert difference(tensor, torch.tensor([1.0, 2.0])) == "sample"
    assert difference((torch.tensor([True]), 1), (torch.tensor([False]), 1)) == "sample[0]"
    sparse = torch.eye(2).to_sparse()
    assert difference(sparse, torch.eye(2).to_sparse()) is None
    assert size([sparse, tensor]) == 8  # what is sparse does not say how large it is
    nested, other = (torch.nested.nested_tensor([tensor, last], layout=torch.jagged) for last in (tensor[:1], tensor))
    assert difference([nested], [nested.clone()]) is None
    assert difference([nested], [other]) == "sample[0][1]"
    assert (size(nested), describe(nested), has_cuda(nested)) == (12, "NestedTensor", False)
    assert describe(tensor) == "Tensor float32 2"
    assert not has_cuda([tensor])
