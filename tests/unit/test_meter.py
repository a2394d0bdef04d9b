"""What loading takes of a process's memory: the most it had, and what it keeps."""

from __future__ import annotations

import sys

import pytest

from holdfast.board_rows import KEPT_BYTES, PEAK_BYTES
from holdfast.workers import meter
from holdfast.workers.board import private_row
from holdfast.workers.meter import Meter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

TAKEN = 128 << 20


@pytest.fixture
def row() -> memoryview:
    return private_row()


def test_memory_that_was_given_back_is_in_the_peak_and_not_in_what_is_kept(row: memoryview) -> None:
    one = Meter(row)
    one.end_unit()
    before = row[KEPT_BYTES]
    bytearray(b"x") * TAKEN
    one.end_unit()
    one.close()
    assert row[PEAK_BYTES] - before > 0.9 * TAKEN
    assert row[KEPT_BYTES] - before < 0.5 * TAKEN


def test_the_next_unit_has_a_peak_of_its_own(row: memoryview) -> None:
    one = Meter(row)
    bytearray(b"x") * TAKEN
    one.end_unit()
    one.end_unit()
    one.close()
    assert row[PEAK_BYTES] - row[KEPT_BYTES] < 0.5 * TAKEN


def test_after_the_first_units_it_is_read_now_and_then(row: memoryview, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty times a second at most: small batches come by the thousand."""
    now_s = 100.0
    monkeypatch.setattr(meter.time, "monotonic", lambda: now_s)
    one, read = Meter(row), 0
    for _ in range(1000):
        row[PEAK_BYTES] = 0
        one.end_unit()
        read += row[PEAK_BYTES] > 0
        now_s += 0.001
    one.close()
    assert 8 + 48 <= read <= 8 + 52
