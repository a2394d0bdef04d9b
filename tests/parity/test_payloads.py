"""The payload zoo through both loaders: each payload in each of the four ways that a batch is made.

One run per family and way, one subtest per payload. The batches of both loaders are all kept while they are compared,
so a slot that is used again too early shows as well.
"""

from __future__ import annotations

import io
import itertools
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from holdfast import DataLoader as HoldfastLoader

from .datasets import as_list, same
from .scenarios import Delivered, Event, Raised, Scenario, epoch_differences, run
from .zoo import ALIASES, BROKEN_BY_TORCH, FAMILIES, Zoo

WAYS: dict[str, dict[str, Any]] = {
    "default_collate": {},
    "own collate": {"collate_fn": as_list},
    "default_convert": {"batch_size": None},
    "raw": {"batch_size": None, "collate_fn": same},
}
GROUPS = list(itertools.product(FAMILIES, WAYS))


@pytest.mark.parametrize(("family", "way"), GROUPS, ids=str)
def test_payloads_arrive_the_same(family: str, way: str, subtests: pytest.Subtests) -> None:
    """Structure, types, values, dtypes, shapes, strides, grad, attributes, identity and aliasing; or the same error.
    And every tensor and array that torch's user can write into, ours can, and the other way round.
    """
    _let_torch_warn_once(family)
    oracle, subject, in_process = (
        run(loader_class, _scenario(family, way, workers))
        for loader_class, workers in ((TorchLoader, 2), (HoldfastLoader, 2), (TorchLoader, 0))
    )
    assert subject.warnings == oracle.warnings
    assert [len(outcome.epochs[0]) for outcome in (oracle, subject, in_process)] == [len(FAMILIES[family]) + 1] * 3
    for number, name in enumerate(FAMILIES[family]):
        expected = (in_process if name in BROKEN_BY_TORCH else oracle).epochs[0][number]
        with subtests.test(name):
            found = _differences(expected, subject.epochs[0][number], name)
            if found:
                pytest.fail("\n".join(found), pytrace=False)


def _scenario(family: str, way: str, workers: int) -> Scenario:
    names = FAMILIES[family]
    alone = "batch_size" in WAYS[way]
    indices = [(family, name, 3) if alone else [(family, name, 3), (family, name, 4)] for name in names]
    arguments = {**WAYS[way], "num_workers": workers, ("sampler" if alone else "batch_sampler"): indices}
    return Scenario(f"{family}, {way}", Zoo, arguments)


def _let_torch_warn_once(family: str) -> None:
    """torch says "prototype" and "beta" once per process, whichever loader comes first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in FAMILIES[family].items():
            payload = make(0)
            if family == "exotic tensors" and name not in BROKEN_BY_TORCH:
                buffer = io.BytesIO()
                torch.save(payload, buffer)
                buffer.seek(0)
                torch.load(buffer, weights_only=False)


def _differences(expected: Event, actual: Event, name: str) -> list[str]:
    found = epoch_differences([expected], [actual], name, Scenario(name, Zoo))
    written, written_by_us = _writing(expected), _writing(actual)
    return found if written == written_by_us else [*found, f"writing: expected {written}, got {written_by_us}"]


def _writing(event: Event) -> Any:
    if not isinstance(event, Delivered):
        return event.kind if isinstance(event, Raised) else event
    return [_write(leaf) for leaf in _leaves(event.batch)]


def _write(leaf: Any) -> str:
    """Write what is there already: the batch stays as it is."""
    try:
        if isinstance(leaf, np.ndarray):
            leaf[...] = leaf.copy()
        else:
            with torch.no_grad():
                leaf.copy_(leaf.clone())
    except Exception as error:
        return type(error).__name__
    return "written"


def _leaves(thing: Any, seen: set[int] | None = None) -> Iterator[Any]:
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, (torch.Tensor, np.ndarray)):
        yield thing
    elif isinstance(thing, Mapping):
        for value in thing.values():
            yield from _leaves(value, seen)
    elif isinstance(thing, (list, tuple, deque)):
        for value in thing:
            yield from _leaves(value, seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        yield from _leaves(vars(thing), seen)


@pytest.mark.parametrize("loader_class", [TorchLoader, HoldfastLoader], ids=["torch", "holdfast"])
def test_writing_to_one_alias_shows_in_the_others_and_nowhere_else(loader_class: type[Any]) -> None:
    """What shared a storage in the worker shares it here; the next batch has memory of its own."""
    indices = [("aliases", "views of one storage", variant) for variant in range(4)]
    batches = list(loader_class(Zoo(), sampler=indices, batch_size=None, collate_fn=same, num_workers=2))
    expected = [ALIASES["views of one storage"](variant) for variant in range(4)]
    for batch, parts in zip(batches, expected, strict=True):
        for things in (batch, parts):
            things["row"].mul_(-1)
            things["column"][3] = 0.5
        for name, part in parts.items():
            assert torch.equal(batch[name], part), name


@pytest.mark.parametrize("loader_class", [TorchLoader, HoldfastLoader], ids=["torch", "holdfast"])
def test_writing_to_a_batch_changes_neither_the_dataset_nor_the_next_epoch(loader_class: type[Any]) -> None:
    """A delivered batch is the user's own."""
    data = torch.arange(12).reshape(6, 2)
    loader = loader_class(torch.utils.data.TensorDataset(data), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        epoch = [batch for (batch,) in loader]
        assert torch.equal(torch.cat(epoch), torch.arange(12).reshape(6, 2))
        for batch in epoch:
            batch.fill_(-1)
    assert torch.equal(data, torch.arange(12).reshape(6, 2))
