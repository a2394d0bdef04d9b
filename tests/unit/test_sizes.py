"""Sizes as users write them, and what is said where they are not any."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.sizes import parse_budget, parse_bytes

UNITS = {"B": 1, "kB": 1000, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.mark.parametrize(
    ("written", "nbytes"),
    [(1, 1), (4 << 30, 4 << 30), ("4GB", 4 * 10**9), ("4GiB", 4 << 30), ("1.5 gb", 15 * 10**8), (" 512 MiB ", 1 << 29)],
)
def test_a_size_is_what_it_says(written: Any, nbytes: int) -> None:
    assert parse_bytes("memory_limit", written) == parse_budget("memory_budget", written) == nbytes


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]))
def test_every_unit_is_understood_in_any_case(number: int, unit: str, space: str) -> None:
    for written in (unit, unit.lower(), unit.upper()):
        assert parse_bytes("memory_limit", f"{number}{space}{written}") == number * UNITS[unit]


@pytest.mark.parametrize(("written", "share"), [("80%", 0.8), ("100 %", 1.0), ("0.5%", 0.005)])
def test_a_share_is_a_number_up_to_one(written: str, share: float) -> None:
    found = parse_budget("memory_budget", written)
    assert isinstance(found, float)
    assert found == pytest.approx(share)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "4",
        "GB",
        "4 gigs",
        "-4GB",
        "0GB",
        "4GB!",
        "1e9",
        0,
        -1,
        1.5,
        True,
        None,
        b"4GB",
        "9" * 400 + "GB",
        "9" * 30 + "B",
        1 << 64,
    ],
)
def test_what_is_no_size_is_refused_with_the_name_and_an_example(written: Any) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f"memory_limit={written!r} ")) as caught:
        parse_bytes("memory_limit", written)
    assert '"4GB"' in str(caught.value)
    with pytest.raises(ValueError, match='"80%"'):
        parse_budget("memory_budget", written)


@pytest.mark.parametrize("written", ["0%", "101%", "1000%"])
def test_a_share_beyond_all_there_is_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="at most 100%"):
        parse_budget("memory_budget", written)


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_value_error(written: str) -> None:
    for parse in (parse_bytes, parse_budget):
        with contextlib.suppress(ValueError):
            assert parse("memory_limit", written) > 0
