"""Collate functions that use default_collate, change what it made, or keep it; and default_collate's own registry.

torch's workers give each collated tensor memory of its own. holdfast collates into a slot that is used again:
what the user's code keeps of it must not change under its hands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate, default_convert
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from .datasets import MapDataset, array, mapping, pair, vector
from .scenarios import Scenario, assert_parity

LONG = 40


def wrapped(batch: list[Any]) -> dict[str, Any]:
    return {"batch": default_collate(batch), "size": len(batch)}


def twice(batch: list[Any]) -> list[Any]:
    return [default_collate(batch), default_collate(batch)]


def of_parts(batch: list[Any]) -> list[Any]:
    return [default_collate(batch[:1]), default_collate(batch), default_collate(batch[1:] or batch)]


def thrown_away(batch: list[Any]) -> Any:
    default_collate(batch)
    return default_collate(batch[::-1])


def changed_in_place(batch: list[Any]) -> Any:
    return default_collate(batch).mul_(10).add_(1)


def new_from_it(batch: list[Any]) -> Any:
    return default_collate(batch) * 2


def a_view_of_it(batch: list[Any]) -> Any:
    return default_collate(batch)[:, 1:]


def views_of_it(batch: list[Any]) -> Any:
    whole = default_collate(batch)
    return {"whole": whole, "first": whole[0], "turned": whole.t()}


def resized(batch: list[Any]) -> Any:
    return default_collate(batch).reshape(-1)[:2].clone()


def as_array(batch: list[Any]) -> Any:
    return default_collate(batch).numpy()


def array_and_tensor(batch: list[Any]) -> Any:
    whole = default_collate(batch)
    return [whole, whole.numpy()]


def of_another_dtype(batch: list[Any]) -> Any:
    return default_collate(batch).to(torch.float64)


def joined(batch: list[Any]) -> Any:
    return torch.cat([default_collate(batch), default_collate(batch)])


def through_convert(batch: list[Any]) -> Any:
    return default_convert([np.asarray(sample) for sample in batch])


FUNCTIONS = [
    *(wrapped, twice, of_parts, thrown_away, changed_in_place, new_from_it, a_view_of_it, views_of_it, resized),
    *(as_array, array_and_tensor, of_another_dtype, joined, through_convert),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_function_around_default_collate_gives_the_same(function: Callable[[list[Any]], Any]) -> None:
    """Whatever it does with the result; all batches are kept, so that none is overwritten unseen."""
    arguments = {"num_workers": 2, "batch_size": 3, "collate_fn": function}
    assert_parity(Scenario(function.__name__, lambda: MapDataset(vector, LONG), arguments))


@pytest.mark.parametrize("function", [wrapped, twice, of_parts, thrown_away], ids=lambda function: function.__name__)
@pytest.mark.parametrize("sample", [pair, mapping, array], ids=lambda sample: sample.__name__)
def test_the_same_with_nested_samples(function: Callable[[list[Any]], Any], sample: Callable[[int], Any]) -> None:
    arguments = {"num_workers": 2, "batch_size": 3, "collate_fn": function}
    assert_parity(Scenario(function.__name__, lambda: MapDataset(sample), arguments))


class KeepsLast:
    """Returns the batch before, which it kept as default_collate made it."""

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, batch: list[Any]) -> Any:
        now = default_collate(batch)
        before, self.last = self.last, now
        return now if before is None else before


class SumsUp:
    """Keeps the first batch, and adds each one to it in place."""

    def __init__(self) -> None:
        self.total: Any = None

    def __call__(self, batch: list[Any]) -> Any:
        now = default_collate(batch)
        if self.total is None:
            self.total = now
            return now.clone()
        self.total += now
        return self.total.clone()


class KeepsView(KeepsLast):
    """Keeps a view of the batch, and returns it later beside the next."""

    def __call__(self, batch: list[Any]) -> Any:
        now = default_collate(batch)
        before, self.last = self.last, now[0]
        return [now, now[0] if before is None else before]


class KeepsArray(KeepsLast):
    """Keeps a numpy array on the memory of the batch."""

    def __call__(self, batch: list[Any]) -> Any:
        now = default_collate(batch)
        before, self.last = self.last, now.numpy()
        return [now, None if before is None else before.copy()]


class KeepsAll:
    """Keeps every batch, and returns the oldest."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, batch: list[Any]) -> Any:
        self.all.append(default_collate(batch))
        return [self.all[0].clone(), self.all[-1].clone()]


class WritesLater(KeepsLast):
    """Writes into the batch that it returned the time before: the user must not see it."""

    def __call__(self, batch: list[Any]) -> Any:
        now = default_collate(batch).clone()
        if self.last is not None:
            self.last.fill_(-1)
        self.last = default_collate(batch)
        return now


@pytest.mark.parametrize("kind", [KeepsLast, SumsUp, KeepsView, KeepsArray, KeepsAll, WritesLater])
@pytest.mark.parametrize("persistent", [False, True], ids=["", "persistent"])
def test_what_a_function_keeps_of_a_batch_stays_as_it_was(kind: type[Any], persistent: bool) -> None:
    """Memory that the worker's code still holds is not given to another batch."""
    assert_parity(
        Scenario(
            kind.__name__,
            lambda: MapDataset(vector, LONG),
            lambda: {"num_workers": 2, "batch_size": 2, "collate_fn": kind(), "persistent_workers": persistent},
            takes=(None, None),
        )
    )


class Caching(Dataset[Any]):
    """Its samples are made by default_collate, and kept."""

    def __init__(self) -> None:
        self.cache: dict[int, Any] = {}

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        key = index % 4
        if key not in self.cache:
            self.cache[key] = default_collate([vector(key), vector(index)])
        return self.cache[key]


@pytest.mark.parametrize(
    "arguments", [{"batch_size": 3}, {"batch_size": None}, {"batch_size": 2, "collate_fn": list}], ids=str
)
def test_what_a_dataset_keeps_of_default_collate_stays_as_it_was(arguments: dict[str, Any]) -> None:
    assert_parity(Scenario("caching", Caching, {"num_workers": 2, **arguments}, takes=(None, None)))


class Meters:
    def __init__(self, value: float) -> None:
        self.value = value


def meters(index: int) -> Meters:
    return Meters(index / 2)


def collate_meters(batch: list[Meters], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.tensor([one.value for one in batch])


def collate_doubled(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    return collate_tensor_fn(batch, collate_fn_map=collate_fn_map) * 2


def collate_transposed(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.stack(batch, 1)


def collate_arrays(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    return np.concatenate(batch)


@pytest.fixture
def registry() -> Iterator[dict[Any, Any]]:
    """default_collate's own table, put back afterwards."""
    before = dict(default_collate_fn_map)
    yield default_collate_fn_map
    default_collate_fn_map.clear()
    default_collate_fn_map.update(before)


REGISTERED = [
    pytest.param(Meters, collate_meters, meters, id="a class of the user"),
    pytest.param(torch.Tensor, collate_doubled, vector, id="tensors, by way of torch's function"),
    pytest.param(torch.Tensor, collate_transposed, vector, id="tensors, in another way"),
    pytest.param(np.ndarray, collate_arrays, array, id="arrays"),
]


@pytest.mark.parametrize(("kind", "function", "sample"), REGISTERED)
def test_what_the_user_registers_with_default_collate_is_used(
    registry: dict[Any, Any], kind: type, function: Callable[..., Any], sample: Callable[[int], Any]
) -> None:
    """A forked worker has the table as the main process had it at iter()."""
    registry[kind] = function
    assert_parity(Scenario("registered", lambda: MapDataset(sample), {"num_workers": 2, "batch_size": 3}))


def test_the_table_of_the_main_process_is_left_alone(registry: dict[Any, Any]) -> None:
    before = dict(registry)
    assert_parity(Scenario("plain", lambda: MapDataset(mapping), {"num_workers": 2, "batch_size": 3}))
    assert registry == before


def test_changing_memory_formats_and_dtypes_within_an_epoch() -> None:
    """The same slot serves batches of other shapes, dtypes and memory formats."""
    assert_parity(Scenario("changing", lambda: MapDataset(changing, LONG), {"num_workers": 2, "batch_size": 2}))


def changing(index: int) -> Any:
    number = index // 2
    dtype = (torch.float32, torch.int16, torch.bool, torch.complex64)[number % 4]
    image = torch.full((3, 1 + number % 5, 2), index).to(dtype)
    return [image, image[:, :1].expand(3, 4, 2), {"empty": image[:0]}, torch.zeros((), dtype=dtype)]
