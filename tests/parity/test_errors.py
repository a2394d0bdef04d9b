"""Exceptions: in the dataset, the collate function, the sampler, worker_init_fn and the stream; and what comes after.

Where holdfast differs on purpose (arguments of the exception, position of a sampler's exception, what follows after a
failed start): test_differences.py.
"""

from __future__ import annotations

import pytest

from .datasets import Lists, MapDataset, as_list, same, text
from .failures import (
    ERRORS,
    Failing,
    FailingLength,
    FailingMany,
    FailingSampler,
    FailingSamplerIter,
    Gated,
    failing_collate,
    failing_init,
    failing_init_of_one,
)
from .scenarios import Scenario, assert_parity
from .streams import FailingGenerator, FailingIter, OwnIterator

PLAIN = {"num_workers": 2, "batch_size": 4}
IN_PROCESS = {"num_workers": 0, "batch_size": 4}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_a_sample_arrives_with_its_type_and_the_next_batch_follows(error: str, workers: int) -> None:
    """Its batch is lost; all others come, in order, and the epoch ends as it should."""
    arguments = {"num_workers": workers, "batch_size": 4}
    assert_parity(Scenario(error, lambda: Failing(error), arguments))


FAILURES = [
    Scenario("several samples", lambda: Failing("ValueError", at=(0, 5, 6, 19)), PLAIN),
    Scenario("every sample", lambda: Failing("KeyError", at=range(20)), PLAIN),
    Scenario("one by one", lambda: Failing("OSError", at=(3, 4)), {"num_workers": 2}),
    Scenario("without batches", lambda: Failing("ValueError"), {"num_workers": 2, "batch_size": None}),
    Scenario("in __getitems__", lambda: FailingMany("ValueError"), PLAIN),
    Scenario("three workers", lambda: Failing("ValueError", at=(5, 9, 13)), {**PLAIN, "num_workers": 3}),
    Scenario(
        "two epochs, persistent",
        lambda: Failing("ValueError"),
        {**PLAIN, "persistent_workers": True},
        takes=(None, None),
    ),
    Scenario(
        "break at the error, persistent",
        lambda: Failing("ValueError", at=(5, 17)),
        {**PLAIN, "persistent_workers": True},
        takes=(2, None),
    ),
    Scenario("out of order", lambda: Failing("ValueError"), {**PLAIN, "in_order": False}, in_order=False),
    Scenario("in collate_fn", lambda: range(20), {**PLAIN, "collate_fn": failing_collate}),
    Scenario("index out of range", lambda: [1, 2, 3], {"num_workers": 2, "sampler": [0, 7, 2, 1]}),
    Scenario("unknown key", lambda: {"a": 1}, {"num_workers": 2, "sampler": ["a", "b", "a"]}),
    Scenario("a TypeError in the dataset", lambda: MapDataset(len, 3), PLAIN),
    Scenario("wrong index", Lists, {"num_workers": 2, "batch_size": None, "sampler": [0, "nonsense", 1]}),
    Scenario("None cannot be collated", lambda: [None] * 6, PLAIN),
    Scenario("objects cannot be collated", lambda: [object()] * 6, PLAIN),
    Scenario("mixed types", lambda: [1, "a", 2, 3, 4, 5], {"num_workers": 2, "batch_size": 2}),
    Scenario("lists of different lengths", lambda: [[1, 2], [3], [4], [5]], {"num_workers": 2, "batch_size": 2}),
    Scenario("dicts with different keys", lambda: [{"a": 1}, {"b": 2}, {"a": 3}], {"num_workers": 2, "batch_size": 2}),
    Scenario("collate_fn takes no list", lambda: range(4), {**PLAIN, "collate_fn": text, "batch_size": 2}),
    Scenario("an iterator that survives", lambda: OwnIterator(9, (3, 4)), PLAIN, asks_length=False),
    Scenario(
        "an iterator that survives, one by one", lambda: OwnIterator(6, (2, 6)), {"num_workers": 2}, asks_length=False
    ),
    Scenario(
        "an iterator that survives, without batches",
        lambda: OwnIterator(6, (1, 4)),
        {"num_workers": 2, "batch_size": None},
        asks_length=False,
    ),
    Scenario("a generator that ends", FailingGenerator, {"num_workers": 2}, asks_length=False),
    Scenario("a generator that ends, in batches", FailingGenerator, {**PLAIN, "batch_size": 2}, asks_length=False),
    Scenario(
        "a generator that ends, persistent",
        FailingGenerator,
        {"num_workers": 2, "persistent_workers": True},
        asks_length=False,
        takes=(None, None),
    ),
    Scenario(
        "in collate_fn of a stream",
        lambda: OwnIterator(9, ()),
        {**PLAIN, "batch_size": 3, "collate_fn": failing_collate},
        asks_length=False,
    ),
    Scenario("at the start of one stream", FailingIter, {"num_workers": 2}, asks_length=False, takes=(2,)),
    Scenario("in worker_init_fn", lambda: range(20), {**PLAIN, "worker_init_fn": failing_init}, takes=(2,)),
    Scenario(
        "in worker_init_fn of one", lambda: range(20), {**PLAIN, "worker_init_fn": failing_init_of_one}, takes=(3,)
    ),
    Scenario(
        "worker_init_fn takes no argument", lambda: range(20), {**PLAIN, "worker_init_fn": dict.fromkeys}, takes=(2,)
    ),
]


@pytest.mark.parametrize("scenario", FAILURES, ids=lambda scenario: scenario.id)
def test_a_failure_in_a_worker_is_the_same_and_so_is_what_follows(scenario: Scenario) -> None:
    """Type and text of the exception at its place among the batches, and the batches after it."""
    assert_parity(scenario)


MAIN_PROCESS = [
    Scenario("__iter__ of the sampler", lambda: range(9), {"num_workers": 2, "sampler": FailingSamplerIter()}),
    Scenario("length of the dataset", lambda: FailingLength(same), {"num_workers": 2}),
    Scenario("sampler, no workers", lambda: range(9), {"num_workers": 0, "sampler": FailingSampler()}),
    Scenario("not iterable sampler", lambda: range(9), {"num_workers": 2, "sampler": 7}),
    Scenario("collate_fn, no workers", lambda: range(9), {**IN_PROCESS, "collate_fn": failing_collate}),
    Scenario("stream, no workers", FailingGenerator, {**IN_PROCESS, "batch_size": 2}, asks_length=False),
    Scenario("stream that cannot start, no workers", FailingIter, IN_PROCESS, asks_length=False),
    Scenario("worker_init_fn, no workers", lambda: range(9), {**IN_PROCESS, "worker_init_fn": failing_init}),
    Scenario("timeout, no workers", lambda: range(9), {**IN_PROCESS, "timeout": 3}),
]


# torch's own iterator fails once more in its __del__.
NO_PREFETCH = pytest.param(
    Scenario("prefetch_factor 0", lambda: range(9), {"num_workers": 2, "prefetch_factor": 0}),
    marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)


@pytest.mark.parametrize("scenario", [*MAIN_PROCESS, NO_PREFETCH], ids=lambda scenario: scenario.id)
def test_a_failure_in_the_main_process_has_the_same_type_and_text(scenario: Scenario) -> None:
    """What fails in iter() or without workers is torch's error, word for word."""
    assert_parity(scenario)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(
            name,
            lambda closed=closed: Gated(closed),
            {"num_workers": 2, "timeout": timeout, **arguments},
            on_error=lambda loader: loader.dataset.gate.set(),
        )
        for name, closed, timeout, arguments in (
            ("first sample", 0, 2, {}),
            ("a later sample", 4, 2, {"batch_size": 2}),
            ("with custom collate", 1, 2, {"collate_fn": as_list}),
        )
    ],
    ids=lambda scenario: scenario.id,
)
def test_a_timeout_has_the_same_type_and_text_and_the_late_batch_still_comes(scenario: Scenario) -> None:
    """RuntimeError('DataLoader timed out after 2 seconds'); once the sample arrives, nothing is missing.

    (So long, because all other batches are to come in time, the first with its workers' start, on a busy machine too.)
    """
    assert_parity(scenario)
