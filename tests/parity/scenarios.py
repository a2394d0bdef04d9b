"""A scenario is data: a dataset, arguments, and how to iterate. It runs through one loader class and gives an outcome.

    outcome = run(torch.utils.data.DataLoader, scenario)

    construction ──► len() ──► epoch 0: next() next() next()... ──► epoch 1 ... ──► random state afterwards
         │             │                  │
      Raised         Raised      Delivered | Raised | End

Everything with state (dataset, sampler, generator) is made afresh for each run, from the same seeds.
`assert_parity(scenario)` runs both loaders and compares all of it.

Runs in: the test process.
"""

from __future__ import annotations

import random
import re
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from holdfast import DataLoader as HoldfastLoader

from .compare import differences

MOST_EVENTS = 200
"""More than any scenario has in an epoch: a loader that never ends is stopped here."""
SHOWN = 20
"""Lines of a failure."""


@dataclass(frozen=True, slots=True)
class Scenario:
    id: str
    dataset: Callable[[], Any]
    arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = field(default_factory=dict)
    """A function where an argument has state: it is called for each run."""
    takes: tuple[int | None, ...] = (None,)
    """One entry per epoch: how many times `next()` is called before the loop breaks. None: to the end."""
    asks_length: bool = True
    in_order: bool = True
    """False: the batches of an epoch are compared as a multiset."""
    between_epochs: Callable[[Any, int], None] | None = None
    """Called with the loader and the number of the epoch that comes next."""
    on_error: Callable[[Any], None] | None = None
    observe: Callable[[Any], Any] | None = None
    """Called with the loader after each epoch; what it returns is compared."""


@dataclass(frozen=True, slots=True)
class Delivered:
    batch: Any


@dataclass(frozen=True, slots=True)
class Raised:
    kind: type[BaseException]
    text: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class End:
    """StopIteration, and again StopIteration at the next call."""


Event = Delivered | Raised | End


@dataclass(slots=True)
class Outcome:
    construction: Raised | None = None
    length: int | Raised | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    epochs: list[list[Event]] = field(default_factory=list)
    observations: list[Any] = field(default_factory=list)
    warnings: list[tuple[type[Warning], str]] = field(default_factory=list)
    random_after: list[Any] = field(default_factory=list)


ARGUMENT_NAMES = (
    "batch_size",
    "num_workers",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "collate_fn",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)
OBJECT_NAMES = ("dataset", "sampler", "batch_sampler", "generator", "multiprocessing_context", "_index_sampler")


def run(loader_class: type[Any], scenario: Scenario) -> Outcome:
    """Run the scenario through one loader class."""
    outcome = Outcome()
    _seed(17)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        arguments = dict(scenario.arguments() if callable(scenario.arguments) else scenario.arguments)
        try:
            loader = loader_class(scenario.dataset(), **arguments)
        except Exception as error:
            outcome.construction = _raised(error)
        else:
            _iterate(loader, scenario, outcome)
            del loader
    outcome.warnings = [(w.category, str(w.message)) for w in recorded if not _is_about_forks(w)]
    outcome.random_after = [torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)]
    if isinstance(arguments.get("generator"), torch.Generator):
        outcome.random_after.append(arguments["generator"].get_state())
    return outcome


def _iterate(loader: Any, scenario: Scenario, outcome: Outcome) -> None:
    outcome.attributes = _attributes(loader)
    if scenario.asks_length:
        outcome.length = _length(loader)
    for epoch, take in enumerate(scenario.takes):
        if scenario.between_epochs is not None and epoch > 0:
            scenario.between_epochs(loader, epoch)
        outcome.epochs.append(_one_epoch(loader, scenario, take))
        if scenario.observe is not None:
            outcome.observations.append(scenario.observe(loader))


def _one_epoch(loader: Any, scenario: Scenario, take: int | None) -> list[Event]:
    events: list[Event] = []
    try:
        iterator = iter(loader)
    except Exception as error:
        return [_raised(error)]
    while take is None or len(events) < take:
        assert len(events) < MOST_EVENTS, f"{scenario.id}: no end after {MOST_EVENTS} events, the last: {events[-1]}"
        event = _next_event(iterator)
        events.append(event)
        if isinstance(event, End):
            assert isinstance(again := _next_event(iterator), End), f"{scenario.id}: after the end came {again}"
            break
        if isinstance(event, Raised) and scenario.on_error is not None:
            scenario.on_error(loader)
    return events


def _next_event(iterator: Any) -> Event:
    try:
        return Delivered(next(iterator))
    except StopIteration:
        return End()
    except Exception as error:
        return _raised(error)


def _raised(error: BaseException) -> Raised:
    """The error itself is not kept: its traceback would keep the iterator alive, in torch's case in a cycle."""
    raised = Raised(type(error), str(error), "".join(traceback.format_exception(error)))
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__context__
    return raised


def _attributes(loader: Any) -> dict[str, Any]:
    values = {name: getattr(loader, name) for name in ARGUMENT_NAMES}
    kinds = {name: type(getattr(loader, name)) for name in OBJECT_NAMES}
    return {
        **values,
        **kinds,
        "name": type(loader).__name__,
        "iterator": loader._iterator,
        "kind": loader._dataset_kind,
    }


def _length(loader: Any) -> int | Raised:
    try:
        return len(loader)
    except Exception as error:
        return _raised(error)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _is_about_forks(warning: warnings.WarningMessage) -> bool:
    """Python 3.12 and later warn once for each fork of the main process; how many there are is meant to differ."""
    return issubclass(warning.category, DeprecationWarning) and "use of fork" in str(warning.message)


# --- comparing two outcomes ---------------------------------------------------------------------------------------


def assert_parity(scenario: Scenario, oracle: type[Any] = TorchLoader, subject: type[Any] = HoldfastLoader) -> None:
    """Run the scenario through both loaders and fail with all that differs."""
    found = outcome_differences(run(oracle, scenario), run(subject, scenario), scenario)
    if found:
        more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        pytest.fail("\n".join([f"{scenario.id}: holdfast differs from torch", *found[:SHOWN], *more]), pytrace=False)


def outcome_differences(expected: Outcome, actual: Outcome, scenario: Scenario) -> list[str]:
    found = _event_differences(expected.construction, actual.construction, "construction")
    found += _event_differences(expected.length, actual.length, "len(loader)")
    found += differences(expected.attributes, actual.attributes, "attributes")
    found += differences(len(expected.epochs), len(actual.epochs), "number of epochs")
    for number, (one, other) in enumerate(zip(expected.epochs, actual.epochs, strict=False)):
        found += epoch_differences(one, other, f"epoch {number}", scenario)
    found += differences(expected.observations, actual.observations, "observations")
    found += differences(expected.warnings, actual.warnings, "warnings")
    found += differences(expected.random_after, actual.random_after, "random state of the main process afterwards")
    return found


def epoch_differences(expected: list[Event], actual: list[Event], path: str, scenario: Scenario) -> list[str]:
    if not scenario.in_order:
        expected, actual = sorted(expected, key=_sort_key), sorted(actual, key=_sort_key)
    found = differences([_kind(event) for event in expected], [_kind(event) for event in actual], f"events of {path}")
    found += [
        f"  {path}, event {number}, of the subject:\n{event.where}"
        for number, event in enumerate(actual)
        if found and isinstance(event, Raised)
    ]
    for number, (one, other) in enumerate(zip(expected, actual, strict=False)):
        found += _event_differences(one, other, f"{path}, event {number}")
    return found


def _event_differences(expected: Any, actual: Any, path: str) -> list[str]:
    if isinstance(expected, Delivered) and isinstance(actual, Delivered):
        return differences(expected.batch, actual.batch, path)
    if isinstance(expected, Raised) and isinstance(actual, Raised):
        found = differences(expected.kind, actual.kind, f"type of the error at {path}")
        return (
            found
            if _is_same_text(expected, actual)
            else [*found, f"text at {path}: {expected.text!r}, {actual.text!r}"]
        )
    return differences(expected, actual, path)


def _is_same_text(expected: Raised, actual: Raised) -> bool:
    """An exception of a worker: torch's text is the worker's traceback, ours the exception's own, which ends it.
    Any other exception: the same text, word for word.
    """
    if not re.match(r"Caught \w+ in DataLoader worker process \d+\.\nOriginal Traceback", expected.text):
        return expected.text == actual.text
    own_end = f"{actual.kind.__name__}: {actual.text}" if actual.text else actual.kind.__name__
    return expected.text.rstrip().endswith(own_end.rstrip())


def _kind(event: Event) -> str:
    return event.kind.__name__ if isinstance(event, Raised) else type(event).__name__


def _sort_key(event: Event) -> tuple[str, str]:
    return _kind(event), repr(event.batch) if isinstance(event, Delivered) else ""
