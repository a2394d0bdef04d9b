"""What is nested deeper than Python walks: refused for what it is."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import holdfast


@dataclasses.dataclass
class Node:
    child: Any


WRAPS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "tuple": lambda inner: (inner, inner),  # twice in it, which is not in itself
    "dict": lambda inner: {"a": inner},
    "dataclass": Node,
}


def nested(wrap: Callable[[Any], Any], depth: int) -> Any:
    data: Any = np.arange(3)
    for _ in range(depth):
        data = wrap(data)
    return data


@pytest.mark.parametrize("name", WRAPS)
def test_what_is_nested_too_deeply_is_not_said_to_contain_itself(name: str) -> None:
    """It says so, and what to do."""
    data = nested(WRAPS[name], sys.getrecursionlimit() + 10)
    with pytest.raises(TypeError) as caught:
        holdfast.share(data)
    assert (
        str(caught.value).splitlines()[0]
        == "obj cannot be shared: it is nested too deeply for Python's recursion limit"
    )
    assert "\n  try   " in str(caught.value)


def test_with_the_limit_raised_it_is_shared() -> None:
    """As the error says."""
    limit = sys.getrecursionlimit()
    data = nested(WRAPS["list"], limit)
    sys.setrecursionlimit(10 * limit)
    try:
        shared = holdfast.share(data)
        assert len(shared[0]) == 1
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("depth", [1, 500])
@pytest.mark.parametrize("name", ["list", "dict", "dataclass"])
def test_what_contains_itself_is_said_to(name: str, depth: int) -> None:
    """However long the way around."""
    end = Node(None)
    data: Any = end
    for _ in range(depth):
        data = WRAPS[name](data)
    end.child = data
    with pytest.raises(TypeError, match=r"^obj cannot be shared: it contains itself$"):
        holdfast.share(data)
