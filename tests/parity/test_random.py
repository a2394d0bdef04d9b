"""Random numbers: of the sampler, of the workers, over epochs, after an early break, with persistent workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler

from .datasets import Consumed, Counting, Eager, EagerBatches
from .scenarios import Scenario, assert_parity
from .streams import Epochs
from .workers import Callback, Drawing, DrawingStream, draw_first

LONG = 41


def _seeded(**arguments: Any) -> Any:
    return lambda: {"num_workers": 2, "batch_size": 2, "generator": torch.Generator().manual_seed(9), **arguments}


def _with_replacement(**arguments: Any) -> Any:
    """The sampler draws in chunks as it is read: the generator's state tells how far ahead the loader read."""

    def make() -> dict[str, Any]:
        generator = torch.Generator().manual_seed(9)
        sampler = RandomSampler(range(LONG), replacement=True, num_samples=2 * LONG, generator=generator)
        return {"num_workers": 2, "batch_size": 3, "generator": generator, "sampler": sampler, **arguments}

    return make


PLAIN = {"num_workers": 2, "batch_size": 2}
PERSISTENT = {**PLAIN, "persistent_workers": True}

SCENARIOS = [
    Scenario("one epoch", Drawing, PLAIN),
    Scenario("three epochs", Drawing, PLAIN, takes=(None, None, None)),
    Scenario("with generator", Drawing, _seeded(), takes=(None, None)),
    Scenario("with generator, shuffled", Drawing, _seeded(shuffle=True), takes=(None, None)),
    Scenario("shuffled", Drawing, {**PLAIN, "shuffle": True}, takes=(None, None)),
    Scenario("persistent workers", Drawing, PERSISTENT, takes=(None, None, None)),
    Scenario("persistent workers, with generator", Drawing, _seeded(persistent_workers=True), takes=(None, None)),
    Scenario(
        "persistent workers, shuffled",
        Drawing,
        _seeded(persistent_workers=True, shuffle=True),
        takes=(None, None, None),
    ),
    Scenario("early break", lambda: Drawing(LONG), PLAIN, takes=(3, None)),
    Scenario("early break with generator", lambda: Drawing(LONG), _seeded(shuffle=True), takes=(3, 0, None)),
    Scenario("early break, persistent workers", lambda: Drawing(LONG), PERSISTENT, takes=(3, None)),
    Scenario("break before the first batch, persistent workers", lambda: Drawing(LONG), PERSISTENT, takes=(0, None)),
    Scenario("breaks again and again, persistent workers", lambda: Drawing(LONG), PERSISTENT, takes=(1, 4, 0, 7, None)),
    Scenario(
        "early break, persistent workers, prefetch 5",
        lambda: Drawing(LONG),
        {**PERSISTENT, "prefetch_factor": 5},
        takes=(2, 5, None),
    ),
    Scenario(
        "break near the end, persistent workers",
        lambda: Drawing(LONG),
        PERSISTENT,
        takes=(LONG // 2, LONG // 2 - 1, None),
    ),
    Scenario("early break, sampler with replacement", lambda: Drawing(LONG), _with_replacement(), takes=(4, 1, None)),
    Scenario(
        "early break, sampler with replacement, persistent workers",
        lambda: Drawing(LONG),
        _with_replacement(persistent_workers=True),
        takes=(4, 1, None),
    ),
    Scenario("eager sampler", Drawing, lambda: {**PLAIN, "sampler": Eager()}, takes=(None, 1, None)),
    Scenario(
        "eager sampler without batches",
        Drawing,
        lambda: {"num_workers": 2, "batch_size": None, "sampler": Eager()},
        takes=(None, 1, None),
    ),
    Scenario(
        "eager batch sampler",
        Drawing,
        lambda: {"num_workers": 2, "batch_sampler": EagerBatches()},
        takes=(None, 1, None),
    ),
    Scenario(
        "eager batch sampler, persistent workers",
        Drawing,
        lambda: {"num_workers": 2, "batch_sampler": EagerBatches(), "persistent_workers": True},
        takes=(None, 1, None),
    ),
    Scenario("one worker", Drawing, {**PLAIN, "num_workers": 1}, takes=(None, None)),
    Scenario("three workers", Drawing, {**PLAIN, "num_workers": 3}, takes=(None, None)),
    Scenario("no workers", Drawing, {**PLAIN, "num_workers": 0}, takes=(None, 2, None)),
    Scenario("no workers, with generator", Drawing, _seeded(num_workers=0, shuffle=True), takes=(None, None)),
    Scenario("samples without batches", Drawing, {"num_workers": 2, "batch_size": None}),
    Scenario("worker_init_fn that draws", Drawing, {**PLAIN, "worker_init_fn": draw_first}, takes=(None, None)),
    Scenario("worker_init_fn that seeds", Drawing, {**PLAIN, "worker_init_fn": Callback(100)}, takes=(None, None)),
    Scenario(
        "worker_init_fn, persistent workers", Drawing, {**PERSISTENT, "worker_init_fn": draw_first}, takes=(3, None)
    ),
    Scenario("streams", DrawingStream, PLAIN, takes=(None, None), asks_length=False),
    Scenario("streams, with generator", DrawingStream, _seeded(), takes=(None, None), asks_length=False),
    Scenario("streams, persistent workers", DrawingStream, PERSISTENT, takes=(None, None), asks_length=False),
    Scenario(
        "streams, early break, persistent workers",
        lambda: DrawingStream(60),
        PERSISTENT,
        takes=(3, 0, 5, None),
        asks_length=False,
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_workers_draw_the_same_random_numbers(scenario: Scenario) -> None:
    """torch, random and numpy in every worker; and the generators of the main process are left in the same state."""
    assert_parity(scenario)


STATEFUL = [
    Scenario("samples loaded", lambda: Counting(LONG), PERSISTENT, takes=(None, None)),
    Scenario("samples loaded, after breaks", lambda: Counting(LONG), PERSISTENT, takes=(3, 1, 0, None)),
    Scenario("samples loaded, afresh in each epoch", lambda: Counting(LONG), PLAIN, takes=(3, None)),
    Scenario("streams opened", Epochs, PERSISTENT, takes=(None, None, None), asks_length=False),
    Scenario("streams opened, after breaks", lambda: Epochs(40), PERSISTENT, takes=(3, 0, 1, None), asks_length=False),
    Scenario("streams opened, afresh in each epoch", Epochs, PLAIN, takes=(None, None), asks_length=False),
]


@pytest.mark.parametrize("scenario", STATEFUL, ids=lambda scenario: scenario.id)
def test_persistent_workers_have_done_the_same_work(scenario: Scenario) -> None:
    """The dataset's own state in a worker shows how much was loaded ahead, before a break and after it."""
    assert_parity(scenario)


def _read_ahead(name: str, takes: tuple[int | None, ...], **arguments: Any) -> Scenario:
    return Scenario(
        name,
        lambda: range(40),
        lambda: {"num_workers": 2, "sampler": Consumed(), **arguments},
        takes=takes,
        observe=lambda loader: loader.sampler.consumed,
    )


@pytest.mark.parametrize(
    "scenario",
    [
        _read_ahead("nothing taken", (0,)),
        _read_ahead("one batch", (1,)),
        _read_ahead("batches of three", (4,), batch_size=3),
        _read_ahead("prefetch 1", (3,), prefetch_factor=1),
        _read_ahead("prefetch 6", (3,), prefetch_factor=6),
        _read_ahead("three workers", (2,), num_workers=3),
        _read_ahead("to the end", (None, 1)),
        _read_ahead("persistent workers", (3, 0, None), persistent_workers=True),
        _read_ahead("out of order", (0,), in_order=False),
    ],
    ids=lambda scenario: scenario.id,
)
def test_the_sampler_is_read_ahead_just_as_far(scenario: Scenario) -> None:
    """A sampler with state of its own, left in mid-epoch, is where torch would have left it."""
    assert_parity(scenario)
