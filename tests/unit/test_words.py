"""Numbers in words, as every message and table says them."""

from __future__ import annotations

import pytest

from holdfast import words


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "sample", "1 sample"),
        (0, "sample", "0 samples"),
        (2000, "batch", "2,000 batches"),
        (1, "batch", "1 batch"),
        (3, "process", "3 processes"),
        (2, "native library", "2 native libraries"),
        (2, "day", "2 days"),
    ],
)
def test_a_count_agrees_with_its_noun(number: int, noun: str, said: str) -> None:
    """Also where more is needed than an s."""
    assert words.plural(number, noun) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (2e-5, "20 µs"),
        (0.25, "250 ms"),
        (2.36, "2.4 s"),
        (42, "42 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (4 * 86400 + 3 * 3600, "4 d 3 h"),
    ],
)
def test_a_duration_has_one_unit_or_two(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said


def test_what_was_measured_has_three_digits() -> None:
    """In the unit that fits; and no number is written with an exponent."""
    measured = (4321.0, 999.9, 3.14159, 0.9999, 0.0123, 0.000_004)
    assert [words.took(each) for each in measured] == ["4321 s", "1000 s", "3.14 s", "1000 ms", "12.3 ms", "4 µs"]
    assert [words.seconds(each) for each in (999.9, 3.0, 0.25)] == ["1000 s", "3 s", "0.25 s"]
    assert [words.rate(each) for each in (12_500.4, 999.9, 35.21, 0.0412)] == ["12,500", "1,000", "35.2", "0.0412"]


def test_sizes_are_in_the_unit_that_fits() -> None:
    """Of powers of two; of powers of ten where limits are talked of, which users write so."""
    assert [words.size(each) for each in (0, 1023, 1536, 8 << 30)] == ["0 bytes", "1023 bytes", "1.5 KiB", "8.0 GiB"]
    decimal = [words.decimal_size(each) for each in (5, 1500, 8_000_000, 86_400_000, 1_240_000_000, 3e12)]
    assert decimal == ["5 bytes", "1.5 kB", "8 MB", "86.4 MB", "1.24 GB", "3 TB"]
    assert [words.limit(each) for each in (4_000_000_000, 1_500_000, 4 << 30)] == ["4 GB", "1.5 MB", "4.0 GiB"]


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert [words.share(part, 1) for part in (0, 0.0001, 0.05, 0.5, 0.9999, 1)] == [
        "0 %",
        "under 0.1 %",
        "5.0 %",
        "50 %",
        "99.9 %",
        "100 %",
    ]
