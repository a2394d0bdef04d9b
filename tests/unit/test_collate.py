"""default_collate builds in the slot: in the loader's own call of collate_fn, with torch's results, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from holdfast.transport import collate
from holdfast.transport.segments import Segment
from holdfast.transport.writer import SlotWriter, area_of

TABLE = torch_collate.default_collate_fn_map


@pytest.fixture(autouse=True)
def _table_restored() -> Iterator[None]:
    before = dict(TABLE)
    yield
    TABLE.clear()
    TABLE.update(before)


def installed() -> SlotWriter:
    """A worker that is about to call collate_fn."""
    segment = Segment.create(1 << 16)
    segment.close_fd()
    writer = SlotWriter()
    collate.install(writer)
    writer.begin(area_of(segment.view))
    writer.begin_collate()
    return writer


def is_in_slot(tensor: torch.Tensor, writer: SlotWriter) -> bool:
    return writer.locate(tensor.data_ptr()) is not None


def test_tensors_are_stacked_in_the_slot() -> None:
    """One copy: from the samples into the slot."""
    writer = installed()
    samples = [torch.full((3, 2), float(k)) for k in range(5)]
    batch = default_collate(samples)
    assert torch.equal(batch, torch.stack(samples))
    assert is_in_slot(batch, writer)


@pytest.mark.parametrize(
    "sample",
    [
        {"x": torch.arange(3), "y": (torch.ones(2), torch.zeros(1, dtype=torch.bool))},
        np.arange(6.0).reshape(2, 3),
        torch.tensor(5),
        torch.ones(2, 3, dtype=torch.bfloat16),
        torch.arange(12).reshape(3, 4).T,
    ],
    ids=["nested", "array", "no dimension", "bfloat16", "transposed"],
)
def test_collated_batches_are_torchs_own(sample: Any) -> None:
    """Values, dtypes and shapes as without us, and every tensor in the slot."""
    expected = default_collate([sample, sample])
    writer = installed()
    got = default_collate([sample, sample])
    for one, other in zip(_tensors(got), _tensors(expected), strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)
        assert is_in_slot(one, writer)


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    else:
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(part)


def test_a_collate_function_of_the_users_that_calls_default_collate_profits_too() -> None:
    """The entry in torch's table is what is replaced, not the function."""
    writer = installed()
    batch = {"padded": default_collate([torch.ones(4), torch.ones(4)])}
    assert is_in_slot(batch["padded"], writer)


def test_nothing_is_built_in_the_slot_while_samples_are_fetched() -> None:
    """A dataset that collates for itself may keep the result: it gets memory of its own."""
    writer = installed()
    writer.begin(writer.areas[0])
    writer.begin_fetch()
    batch = default_collate([torch.ones(4), torch.ones(4)])
    assert torch.equal(batch, torch.ones(2, 4))
    assert writer.used_bytes() == [0]


def test_nothing_is_built_in_the_slot_between_units() -> None:
    """The user's code may collate whenever it runs, in a thread of its own too."""
    writer = installed()
    writer.end()
    assert torch.equal(default_collate([torch.ones(4), torch.ones(4)]), torch.ones(2, 4))
    assert writer.areas == []


def test_a_worker_whose_collate_function_keeps_its_batches_builds_elsewhere_from_then_on() -> None:
    """A cache in collate_fn: its tensors must not be overwritten by the next batch."""
    writer = installed()
    kept = default_collate([torch.ones(4), torch.ones(4)])
    assert writer.is_kept()
    writer.begin(writer.areas[0])
    writer.begin_collate()
    batch = default_collate([torch.zeros(4), torch.zeros(4)])
    assert not is_in_slot(batch, writer)
    assert torch.equal(kept, torch.ones(2, 4))


def test_an_entry_that_the_user_replaced_stays() -> None:
    """What the user put into torch's table is not touched."""

    def of_the_user(batch: Any, *, collate_fn_map: Any = None) -> str:
        return "the user's"

    TABLE[torch.Tensor] = of_the_user
    installed()
    assert TABLE[torch.Tensor] is of_the_user
    assert default_collate([torch.ones(1)]) == "the user's"


def test_entries_for_other_types_stay() -> None:
    """Only the entry for tensors is ours."""
    before = {kind: function for kind, function in TABLE.items() if kind is not torch.Tensor}
    installed()
    assert {kind: function for kind, function in TABLE.items() if kind is not torch.Tensor} == before


def test_an_entry_is_not_replaced_a_second_time() -> None:
    """Whatever calls install again, the first writer keeps its place."""
    first = installed()
    entry = TABLE[torch.Tensor]
    installed()
    assert TABLE[torch.Tensor] is entry
    assert is_in_slot(default_collate([torch.ones(1)]), first)


def test_samples_of_different_sizes_raise_as_torch_does() -> None:
    """The message is torch.stack's own."""
    installed()
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        default_collate([torch.ones(2), torch.ones(3)])


def test_samples_of_no_bytes_collate() -> None:
    """An empty tensor needs no slot."""
    installed()
    assert default_collate([torch.ones(0, 3), torch.ones(0, 3)]).shape == (2, 0, 3)


@pytest.mark.parametrize("kind", ["subclass", "parameter"])
def test_subclasses_are_stacked_by_their_own_rules(kind: str) -> None:
    """They may override torch.stack: what comes out is theirs, wherever it lies."""
    make = {"subclass": Named, "parameter": torch.nn.Parameter}[kind]
    sample = torch.ones(3)
    writer = installed()
    with torch.no_grad():
        batch = default_collate([make(sample), make(sample)])
    assert torch.equal(batch.as_subclass(torch.Tensor), torch.ones(2, 3))
    assert not is_in_slot(batch, writer)


class Named(torch.Tensor):
    """A tensor subclass of the user's."""


def test_a_batch_too_large_for_its_slot_is_stacked_in_memory_of_its_own() -> None:
    """No copy either: the spilled area is where the stack is made."""
    writer = installed()
    batch = default_collate([torch.ones(50_000), torch.ones(50_000)])
    assert is_in_slot(batch, writer)
    assert len(writer.spilled_handles()) == 1
    writer.end()


def test_a_dataset_of_ours_builds_its_batch_in_the_slot() -> None:
    """While a unit is in hand, also before collating; not between units, nor once somebody keeps what is built."""
    writer = installed()
    writer.begin_fetch()
    tensor = collate.new_tensor(torch.int32, (3, 5))
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.int32, (3, 5))
    assert is_in_slot(tensor, writer)
    assert collate.new_tensor(torch.int64, (0, 4)).shape == (0, 4)
    assert writer.is_kept()
    assert not is_in_slot(collate.new_tensor(torch.int32, (3, 5)), writer)
    writer.end()
    assert collate.new_tensor(torch.int32, (2,)).shape == (2,)
