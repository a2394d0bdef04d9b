"""Iterable datasets: uneven streams, drop_last, lengths, chains, exhaustion, several epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import ChainDataset, IterableDataset

from holdfast import DataLoader

from .datasets import as_list, same
from .scenarios import Scenario, assert_parity
from .streams import Chained, Epochs, Replicated, Uneven


def _scenario(name: str, dataset: Any, asks_length: bool = False, takes: Any = (None,), **arguments: Any) -> Scenario:
    return Scenario(name, dataset, {"num_workers": 2, **arguments}, asks_length=asks_length, takes=takes)


LENGTHS: dict[str, tuple[int, ...]] = {
    "even": (6, 6),
    "first longer": (9, 2),
    "second longer": (1, 8),
    "first empty": (0, 5),
    "second empty": (5, 0),
    "all empty": (0, 0),
    "three": (2, 7, 4),
    "three, one empty": (5, 0, 3),
    "four": (1, 9, 2, 5),
    "one": (7,),
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "batches of 1": {},
    "batches of 3": {"batch_size": 3},
    "drop_last": {"batch_size": 3, "drop_last": True},
    "no batches": {"batch_size": None},
    "prefetch 1": {"batch_size": 2, "prefetch_factor": 1},
    "prefetch 4": {"batch_size": 2, "prefetch_factor": 4},
    "own collate": {"batch_size": 2, "collate_fn": as_list},
}

UNEVEN = [
    _scenario(
        f"{name}, {arguments}",
        lambda lengths=lengths: Uneven(*lengths),
        num_workers=len(lengths),
        **ARGUMENTS[arguments],
    )
    for name, lengths in LENGTHS.items()
    for arguments in ARGUMENTS
]

OTHERS = [
    _scenario("several epochs", lambda: Uneven(5, 2), takes=(None, None, 1, None), batch_size=2),
    _scenario(
        "several epochs, persistent",
        lambda: Uneven(5, 2),
        takes=(None, None, None),
        batch_size=2,
        persistent_workers=True,
    ),
    _scenario(
        "early break, persistent", lambda: Uneven(30, 7), takes=(3, 1, None), batch_size=2, persistent_workers=True
    ),
    _scenario("dataset counts epochs", Epochs, takes=(None, None), batch_size=2),
    _scenario("chain", lambda: ChainDataset([Uneven(3, 1), Uneven(2, 4)]), batch_size=2),
    _scenario("chain by +", lambda: Replicated(3) + Replicated(2), batch_size=2),
    _scenario("chain, length", lambda: Chained([Replicated(3), Replicated(2)]), asks_length=True, batch_size=2),
    _scenario("length", lambda: Replicated(5), asks_length=True, batch_size=2),
    _scenario("length, drop_last", lambda: Replicated(5), asks_length=True, batch_size=2, drop_last=True),
    _scenario("length, no batches", lambda: Replicated(5), asks_length=True, batch_size=None, collate_fn=same),
    _scenario("length, one by one", lambda: Replicated(5), asks_length=True),
    _scenario(
        "length, persistent", lambda: Replicated(3), asks_length=True, persistent_workers=True, takes=(None, None)
    ),
    _scenario("length, no workers", lambda: Replicated(5), asks_length=True, num_workers=0),
    _scenario("no length", lambda: Uneven(2, 2), asks_length=True),
    _scenario("no workers", lambda: Uneven(3, 4), num_workers=0, batch_size=2, drop_last=True),
    _scenario("no workers, no batches", lambda: Uneven(3, 4), num_workers=0, batch_size=None),
    _scenario("shuffle=False", lambda: Uneven(3, 4), shuffle=False),
]


@pytest.mark.parametrize("scenario", UNEVEN, ids=lambda scenario: scenario.id)
def test_uneven_streams_come_in_the_same_order(scenario: Scenario) -> None:
    """Batches alternate between the workers until one is exhausted; then the others go on."""
    assert_parity(scenario)


@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.id)
def test_streams_behave_the_same(scenario: Scenario) -> None:
    """Epochs, chains, lengths, and the warning about a length that was passed."""
    assert_parity(scenario)


@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_streams_out_of_order_have_the_same_batches(persistent: bool) -> None:
    """in_order=False: every batch of every stream once, in whatever order."""
    arguments = {"batch_size": 2, "num_workers": 3, "in_order": False, "persistent_workers": persistent}
    scenario = Scenario(
        "out of order", lambda: Uneven(5, 1, 8), arguments, asks_length=False, in_order=False, takes=(None, None)
    )
    assert_parity(scenario)


def test_the_warning_about_a_passed_length_is_really_there() -> None:
    """The scenarios above are not equal for want of warnings."""
    import warnings

    from holdfast import DataLoader

    loader: DataLoader[int] = DataLoader(Replicated(3), num_workers=2)
    assert len(loader) == 3
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        assert len(list(loader)) == 6
    assert [warning.category for warning in recorded] == [UserWarning] * 3


class OpenedOnce(IterableDataset[int]):
    """Counts how often it is asked for an iterator."""

    opened = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(range(6))


def test_without_workers_an_iterable_is_opened_once_for_each_epoch() -> None:
    """Also where it is our iterator that reads it: opening may take a file, a connection, or the first element."""
    dataset = OpenedOnce()
    loader = DataLoader(dataset, 2, on_error="skip")
    for epoch in (1, 2):
        assert torch.cat(list(loader)).tolist() == list(range(6))
        assert dataset.opened == epoch
