"""What a loader counts, and what it tells of it."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.loader.stats import Counters, LoaderStats


def test_a_reading_tells_every_count_by_its_name() -> None:
    """Each in its own field: a number of its own for each."""
    names = [field.name for field in dataclasses.fields(Counters)]
    counters = Counters(**{name: k for k, name in enumerate(names)})  # type: ignore[arg-type]
    assert dataclasses.asdict(counters.read()) == {name: k for k, name in enumerate(names)}
    assert [field.name for field in dataclasses.fields(LoaderStats)] == names


def test_a_reading_does_not_change_when_counting_goes_on() -> None:
    """It can be kept and compared with a later one."""
    counters = Counters()
    before = counters.read()
    counters.batches += 1
    assert (before.batches, counters.read().batches) == (0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.batches = 2  # type: ignore[misc]
