"""Datasets x samplers in full, and with them collate functions and arguments in turn, so that the pairs are covered."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from .datasets import BATCH_SAMPLERS, COLLATES, LENGTH, MAP_DATASETS, SAMPLERS, Changing, Keyed, Lists, Unsized, same
from .scenarios import Scenario, assert_parity

ARGUMENTS: dict[str, dict[str, Any]] = {
    "batches of 4": {"batch_size": 4},
    "batches of 1": {},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "one batch": {"batch_size": 64},
    "one batch, dropped": {"batch_size": 64, "drop_last": True},
    "prefetch 1": {"batch_size": 2, "prefetch_factor": 1},
    "prefetch 5": {"batch_size": 3, "prefetch_factor": 5},
    "persistent": {"batch_size": 4, "persistent_workers": True},
    "one worker": {"batch_size": 3, "num_workers": 1},
    "three workers": {"batch_size": 2, "num_workers": 3},
    "timeout": {"batch_size": 4, "timeout": 60},
}


def rows() -> list[tuple[str, str, str, str]]:
    """Every dataset with every sampler; the other two columns turn at different speeds."""
    pairs = itertools.product(MAP_DATASETS, SAMPLERS)
    return [(*pair, *others) for pair, *others in zip(pairs, itertools.cycle(COLLATES), itertools.cycle(ARGUMENTS))]


def grid() -> list[Scenario]:
    return [
        _scenario(
            ", ".join((data, sampler, collate, argument)),
            data,
            SAMPLERS[sampler],
            {"num_workers": 2, **COLLATES[collate], **ARGUMENTS[argument]},
        )
        for data, sampler, collate, argument in rows()
    ]


def batch_sampler_grid() -> list[Scenario]:
    return [
        _scenario(f"{data}, {sampler}", data, BATCH_SAMPLERS[sampler], {"num_workers": 2, **COLLATES[collate]})
        for (data, sampler), collate in zip(
            itertools.product(("tensors", "getitems", "dicts"), BATCH_SAMPLERS),
            itertools.cycle(COLLATES),
            strict=False,
        )
    ]


def without_batches_grid() -> list[Scenario]:
    collates: dict[str, dict[str, Any]] = {"default_convert": {}, "custom": {"collate_fn": same}}
    return [
        _scenario(
            f"{data}, {collate}",
            data,
            SAMPLERS["shuffle"],
            {"num_workers": 2, "batch_size": None, **collates[collate]},
        )
        for data, collate in itertools.product(MAP_DATASETS, collates)
    ]


def in_process_grid() -> list[Scenario]:
    """num_workers=0: a few of each column."""
    return [
        _scenario(f"{data}, {sampler}", data, SAMPLERS[sampler], {"num_workers": 0, "batch_size": 4})
        for data, sampler in zip(MAP_DATASETS, itertools.cycle(SAMPLERS), strict=False)
    ]


def _scenario(name: str, data: str, sampler: Any, options: dict[str, Any]) -> Scenario:
    dataset = MAP_DATASETS[data]
    takes = (None, None) if options.get("persistent_workers") else (None,)
    return Scenario(name, dataset, lambda: {**options, **sampler(dataset())}, takes=takes)


@pytest.mark.parametrize("scenario", grid(), ids=lambda scenario: scenario.id)
def test_a_dataset_with_a_sampler_gives_the_same_batches(scenario: Scenario) -> None:
    """Batches, order, length, warnings and the state of all random generators are the same."""
    assert_parity(scenario)


@pytest.mark.parametrize("scenario", batch_sampler_grid(), ids=lambda scenario: scenario.id)
def test_a_batch_sampler_gives_the_same_batches(scenario: Scenario) -> None:
    """Also where batch sizes differ from batch to batch, and where the indices come as tuples."""
    assert_parity(scenario)


@pytest.mark.parametrize("scenario", without_batches_grid(), ids=lambda scenario: scenario.id)
def test_batch_size_none_gives_the_same_samples(scenario: Scenario) -> None:
    """Without automatic batching each sample travels alone, through default_convert or a function of the user."""
    assert_parity(scenario)


@pytest.mark.parametrize("scenario", in_process_grid(), ids=lambda scenario: scenario.id)
def test_loading_without_workers_gives_the_same_batches(scenario: Scenario) -> None:
    """num_workers=0 is torch's own way."""
    assert_parity(scenario)


@pytest.mark.parametrize("columns", list(itertools.combinations(range(4), 2)), ids=str)
def test_the_grid_covers_every_pair_of_values(columns: tuple[int, int]) -> None:
    """Each collate function meets each dataset, each sampler and each set of arguments, and so on for all columns."""
    values = (MAP_DATASETS, SAMPLERS, COLLATES, ARGUMENTS)
    one, other = columns
    assert {(row[one], row[other]) for row in rows()} == set(itertools.product(values[one], values[other]))


INDICES = [
    Scenario("names", lambda: Keyed(["a", "b", "c"]), {"sampler": ["c", "a", "b", "a"], "num_workers": 2}),
    Scenario(
        "lists of indices without batching",
        Lists,
        {"sampler": [[0, 1], [2], [], [3, 10]], "batch_size": None, "num_workers": 2},
    ),
    Scenario(
        "slices without batching",
        Lists,
        {"sampler": [slice(0, 3), slice(None, None, 4)], "batch_size": None, "num_workers": 2},
    ),
    Scenario(
        "tuples as indices",
        lambda: {(0, 1): 5, (1, 0): 6},
        {"sampler": [(1, 0), (0, 1), (1, 0)], "num_workers": 2},
    ),
    Scenario(
        "a batch sampler nested by hand",
        Lists,
        lambda: {"sampler": [[9, 8], [7]], "batch_size": None, "collate_fn": same, "num_workers": 2},
    ),
    Scenario("no length, own sampler", Unsized, {"sampler": range(5), "num_workers": 2}),
    Scenario("no length, no sampler", Unsized, {"num_workers": 2}),
    Scenario("nothing to load", lambda: [], {"num_workers": 2}),
    Scenario(
        "nothing to load, in batches", lambda: [], {"batch_size": 4, "num_workers": 2, "persistent_workers": True}
    ),
    Scenario("an empty batch", lambda: range(3), {"batch_sampler": [[0, 1], [], [2]], "num_workers": 2}),
    Scenario(
        "an empty batch, own collate",
        lambda: range(3),
        {"batch_sampler": [[0, 1], [], [2]], "collate_fn": len, "num_workers": 2},
    ),
    Scenario("more workers than batches", lambda: range(3), {"batch_size": 3, "num_workers": 3}),
    Scenario(
        "many indices in a batch",
        lambda: range(70000),
        {"batch_size": 65536, "num_workers": 2, "collate_fn": sum},
    ),
    Scenario(
        "a dataset that changes between epochs",
        Changing,
        {"batch_size": 4, "num_workers": 2},
        takes=(None, None, 2, None),
        between_epochs=lambda loader, epoch: setattr(loader.dataset, "offset", 100 * epoch),
    ),
    Scenario(
        "a dataset that changes between epochs, persistent workers",
        Changing,
        {"batch_size": 4, "num_workers": 2, "persistent_workers": True},
        takes=(None, None),
        between_epochs=lambda loader, epoch: setattr(loader.dataset, "offset", 100 * epoch),
    ),
]


@pytest.mark.parametrize("scenario", INDICES, ids=lambda scenario: scenario.id)
def test_whatever_the_sampler_yields_reaches_the_dataset(scenario: Scenario) -> None:
    """Indices are any objects; a batch may be empty, or huge; the dataset is the one of the moment of iter()."""
    assert_parity(scenario)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(
            f"{workers} workers, prefetch {prefetch}",
            lambda: range(LENGTH),
            {"batch_size": 2, "num_workers": workers, "prefetch_factor": prefetch, "in_order": False},
            in_order=False,
            takes=(None, None),
        )
        for workers, prefetch in ((2, 1), (3, 2))
    ],
    ids=lambda scenario: scenario.id,
)
def test_out_of_order_delivery_has_the_same_batches(scenario: Scenario) -> None:
    """in_order=False: every batch once, in whatever order."""
    assert_parity(scenario)
