"""Where a shared list could be told from a list: its words for what is no index, and equality with itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import holdfast


@pytest.mark.parametrize("index", ["a", 1.0, None, [1, 2]])
def test_what_is_no_index_is_refused_in_a_lists_words(index: Any) -> None:
    """And not in those of the range that looks it up."""
    with pytest.raises(TypeError) as of_list:
        [1, 2][index]
    with pytest.raises(TypeError) as of_shared:
        holdfast.share([1, 2])[index]
    assert str(of_shared.value) == str(of_list.value)


@pytest.mark.parametrize("items", [[math.nan, 1.0], [np.arange(100)] * 2], ids=["nan", "arrays"])
def test_a_list_equals_itself_whatever_is_in_it(items: list[Any]) -> None:
    """As a list does, which looks at identity first: not-a-number is not equal to itself, an array not to any."""
    shared = holdfast.share(items)
    for one, other in ((items, items[:]), (shared, shared[:]), (shared[1:], shared[1:])):
        assert one == one  # noqa: PLR0124
        assert one == other
        assert not one != other  # noqa: SIM202
