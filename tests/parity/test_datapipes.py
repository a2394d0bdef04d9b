"""DataPipes, as far as torch still has them: shuffling, sharding, seeds shared by the workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from .datasets import as_list
from .scenarios import Scenario, assert_parity
from .workers import draw_first

LENGTH = 12


def _double(value: int) -> int:
    return 2 * value


def _plain() -> Any:
    return IterableWrapper(range(LENGTH))


def _sharded() -> Any:
    return IterableWrapper(range(LENGTH)).sharding_filter()


def _shuffled() -> Any:
    return IterableWrapper(range(LENGTH)).shuffle().sharding_filter()


def _long_pipe() -> Any:
    return IterableWrapper(range(LENGTH)).shuffle(buffer_size=5).sharding_filter().map(_double).batch(2)


def _seeded(**arguments: Any) -> Any:
    return lambda: {"num_workers": 2, "generator": torch.Generator().manual_seed(3), **arguments}


SCENARIOS = [
    Scenario("replicated", _plain, {"num_workers": 2}, asks_length=False),
    Scenario("sharded", _sharded, {"num_workers": 2, "batch_size": 2}, asks_length=False),
    Scenario("sharded, three workers", _sharded, {"num_workers": 3}, asks_length=False, takes=(None, None)),
    Scenario("shuffled", _shuffled, {"num_workers": 2}, asks_length=False, takes=(None, None)),
    Scenario("shuffle=True", _shuffled, {"num_workers": 2, "shuffle": True}, asks_length=False, takes=(None, None)),
    Scenario("shuffle=False", _shuffled, {"num_workers": 2, "shuffle": False}, asks_length=False, takes=(None, None)),
    Scenario("with generator", _shuffled, _seeded(), asks_length=False, takes=(None, None)),
    Scenario("persistent", _shuffled, _seeded(persistent_workers=True), asks_length=False, takes=(None, None, None)),
    Scenario("persistent, break", _shuffled, _seeded(persistent_workers=True), asks_length=False, takes=(2, None)),
    Scenario("worker_init_fn", _shuffled, _seeded(worker_init_fn=draw_first), asks_length=False, takes=(None, None)),
    Scenario("a longer pipe", _long_pipe, _seeded(batch_size=None), asks_length=False, takes=(None, None)),
    Scenario("no workers", _shuffled, _seeded(num_workers=0), asks_length=False, takes=(None, None)),
    Scenario("length", _sharded, {"num_workers": 2}),
    Scenario("map-style", lambda: SequenceWrapper(range(LENGTH)), {"num_workers": 2, "batch_size": 5}),
    Scenario("map-style, mapped", lambda: SequenceWrapper(range(LENGTH)).map(_double), {"num_workers": 2}),
    Scenario(
        "map-style, shuffle=True",
        lambda: SequenceWrapper(range(LENGTH)),
        _seeded(shuffle=True, batch_size=5, collate_fn=as_list),
        takes=(None, None),
    ),
    Scenario(
        "map-style, shuffled by itself",
        lambda: SequenceWrapper(range(LENGTH)).shuffle(),
        _seeded(batch_size=5),
        takes=(None,),
        asks_length=False,
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_datapipe_gives_the_same(scenario: Scenario) -> None:
    """Elements, order, shards and warnings, over several epochs."""
    assert_parity(scenario)
