"""Batches that are moved to a device: what changes in them, and what is asked of the device, without CUDA."""

from __future__ import annotations

import types
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import holdfast
from holdfast.device.moving import Mover, move_all, move_others
from holdfast.loader import pinned
from numbered import Numbered, numbers


class MovesItself:
    def __init__(self, device: Any = None) -> None:
        self.device = device

    def to(self, device: Any) -> MovesItself:
        return MovesItself(device)


def test_a_mover_changes_tensors_and_nothing_else() -> None:
    meta = torch.device("meta")
    tensor, sparse = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True), torch.eye(3).to_sparse()
    batch = {"a": [tensor, "text", b"bytes", 3, None], "b": (tensor,), "c": MovesItself(), "d": sparse, "e": range(2)}
    mover = Mover(meta)
    moved = mover.move(batch)
    assert moved["a"][0].device == meta
    assert (moved["a"][0].dtype, moved["a"][0].requires_grad) == (torch.bfloat16, True)
    assert moved["a"][0] is moved["b"][0]
    assert moved["a"][1:] == ["text", b"bytes", 3, None]
    assert mover.has_others
    assert (moved["c"].device, moved["d"].device) == (None, torch.device("cpu"))
    assert batch["a"][0] is tensor
    whole = move_others(moved, meta)
    assert (whole["c"].device, whole["d"].device) == (meta, meta)


class MadeWhenAsked(Sequence[Any]):
    """Its tensors are there only while somebody looks at them."""

    def __init__(self, first: int, second: int) -> None:
        self.lengths = first, second

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: Any) -> torch.Tensor:
        return torch.zeros(self.lengths[at])


def test_tensors_that_are_made_when_they_are_asked_for_are_not_taken_for_one_another() -> None:
    """One that is gone leaves its place in memory to the next."""
    batch = [MadeWhenAsked(k, k + 1) for k in range(0, 40, 2)]
    moved = move_all(batch, torch.device("meta"))
    assert [len(tensor) for pair in moved for tensor in pair] == list(range(40))


class Triple(tuple[Any, ...]):
    """One that is made in a way of its own."""

    __slots__ = ()

    def __new__(cls, first: Any, second: Any, third: Any) -> Triple:
        return super().__new__(cls, (first, second, third))


def test_what_has_nothing_to_move_is_not_rebuilt() -> None:
    """It may be of a kind that cannot be; one that has, and cannot be, becomes the plainest of its kind."""
    kept = [range(3), Triple(1, 2, 3), memoryview(np.zeros((2, 2))), bytearray(b"ab"), types.MappingProxyType({"a": 1})]
    moved = move_all({"x": torch.zeros(3), "kept": kept}, torch.device("meta"))
    assert moved["x"].is_meta
    assert all(one is other for one, other in zip(moved["kept"], kept, strict=True))
    triple = move_all(Triple(1, torch.zeros(3), 3), torch.device("meta"))
    assert (type(triple), triple[0], triple[1].is_meta, triple[2]) == (tuple, 1, True, 3)


@pytest.mark.parametrize("leaf", [np.zeros(3), SimpleNamespace(x=torch.zeros(3)), {torch.zeros(3)}, MovesItself()])
def test_a_mover_says_what_may_still_lie_in_a_slot(leaf: Any) -> None:
    """Whatever is no container and not surely without memory of its own: who copies from it is waited for."""
    plain = [torch.zeros(2), "text", b"bytes", 3, 2.5, True, None]
    for batch, has_others in (([plain, {"a": 1}], False), ([*plain, {"a": leaf}], True)):
        mover = Mover(torch.device("meta"))
        mover.move(batch)
        assert mover.has_others is has_others


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_any_device_will_do(workers: int, on_error: Any) -> None:
    """Batches for what is not CUDA are moved when they are asked for."""
    loader = holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=workers, device="meta", on_error=on_error)
    with loader:
        assert [(batch.device.type, batch.shape) for batch in loader] == [("meta", (4, 3000))] * 2


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_interrupt_while_a_batch_is_moved_loses_none(
    monkeypatch: pytest.MonkeyPatch, workers: int, on_error: Any
) -> None:
    """Nor does one that fails to move cost the next its place."""
    lengths: list[int] = []

    def move(batch: Any, device: torch.device) -> Any:
        lengths.append(len(batch))
        if len(lengths) in {1, 3}:
            raise KeyboardInterrupt
        if len(lengths) == 5:
            raise torch.OutOfMemoryError("the device is full")
        return move_all(batch, device)

    monkeypatch.setattr(pinned, "move_all", move)
    came: list[Any] = []
    with holdfast.DataLoader(
        Numbered(11), batch_size=3, num_workers=workers, device="meta", on_error=on_error
    ) as loader:
        epoch = iter(loader)
        while len(came) < 6:
            try:
                came.append(len(next(epoch)))
            except (KeyboardInterrupt, torch.OutOfMemoryError) as error:
                came.append(type(error))
        with pytest.raises(StopIteration):
            next(epoch)
    assert came == [KeyboardInterrupt, 3, KeyboardInterrupt, 3, torch.OutOfMemoryError, 2]


class SaysHow(MovesItself):
    said: ClassVar[list[bool]] = []

    def to(self, device: Any, non_blocking: bool = False) -> MovesItself:
        self.said.append(non_blocking)
        return super().to(device)


def test_copies_to_other_devices_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot is free when the call returns, and no fence of theirs is known to us. CUDA's are not waited for."""
    said: list[bool] = []
    plain_to = torch.Tensor.to

    def to(self: torch.Tensor, device: Any, non_blocking: bool = False) -> torch.Tensor:
        said.append(non_blocking)
        return plain_to(self, "meta")

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(SaysHow, "said", said)
    for device in ("mps", "xpu", "meta", "cuda"):
        said.clear()
        move_all([torch.zeros(3), SaysHow()], torch.device(device))
        assert len(said) > 1
        assert set(said) == {device == "cuda"}


def test_the_cpu_is_where_batches_are_anyway() -> None:
    with holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=1, device="cpu") as loader:
        assert torch.equal(torch.cat(list(loader)), numbers(0, 8))


class OfArrays(Numbered):
    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(np.full(self.width, index, np.int32)), torch.from_numpy(np.zeros(0, np.int32))


def copied(samples: list[Any]) -> Any:
    return [torch.stack([sample[k] for sample in samples]) for k in range(2)]


def use_a_default_device(worker_id: int) -> None:
    torch.set_default_device("meta")


@pytest.mark.parametrize("collate_fn", [None, copied])
def test_a_default_device_is_not_where_batches_lie(collate_fn: Any) -> None:
    """torch.set_default_device, in the main process and in the workers: batches come as with torch's loader."""
    options: dict[str, Any] = {"collate_fn": collate_fn, "worker_init_fn": use_a_default_device}
    with holdfast.DataLoader(OfArrays(8), batch_size=4, num_workers=1, **options) as loader:
        epoch = iter(loader)
        with torch.device("meta"):
            (first, nothing), (second, _) = epoch
    assert torch.equal(torch.cat([first, second]), numbers(0, 8))
    assert (nothing.device.type, nothing.shape) == ("cpu", (4, 0))


def test_nor_where_shared_data_lies() -> None:
    array, tensor = np.arange(5000), torch.arange(5000)
    with torch.device("meta"):
        shared = holdfast.share({"array": array, "tensor": tensor})
    assert np.array_equal(shared["array"], array)
    assert torch.equal(shared["tensor"], tensor)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", True, 1.5, -1, 2**70])
def test_what_is_no_device_is_refused_at_once(device: Any) -> None:
    with pytest.raises(ValueError, match="device="):
        holdfast.DataLoader(Numbered(8), device=device)


@pytest.mark.parametrize("ahead", [0, -1, 1.5, True, None])
def test_so_is_a_wrong_number_ahead(ahead: Any) -> None:
    with pytest.raises(ValueError, match="prefetch_to_device="):
        holdfast.DataLoader(Numbered(8), prefetch_to_device=ahead)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("device", ["cuda", 0, torch.device("cuda", 1)])
def test_a_device_that_is_not_there_is_said_so(workers: int, device: Any) -> None:
    """When batches are asked for: a loader may be made where there is none."""
    loader = holdfast.DataLoader(Numbered(8), num_workers=workers, device=device)
    with pytest.raises(RuntimeError, match="torch sees no CUDA device"):
        iter(loader)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_so_is_one_of_another_kind(workers: int, device: str) -> None:
    """Before any worker is started, and not by whatever torch raises when the first batch is moved."""
    loader = holdfast.DataLoader(Numbered(8), num_workers=workers, device=device)
    with pytest.raises(RuntimeError, match=f"device='{device}': torch cannot use it here"):
        iter(loader)


def test_moving_all_keeps_what_is_there() -> None:
    assert move_all([1, "a"], torch.device("meta")) == [1, "a"]
