"""Pinned slots and batches on the device, on a real one.

The data tells: sample k is full of k, a slot is overwritten with other bytes the moment it is free, and copies are held
up on the device so that the host runs far ahead of them.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

import holdfast
from holdfast.device.cuda import CudaFence, CudaRegistrar, CudaStreams
from holdfast.transport.slots import Slot, SlotPool

pytestmark = pytest.mark.gpu

WIDTH = 64 * 1024
HELD_UP = 2_000_000  # cycles: about a millisecond


class Numbered(Dataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), index, dtype=torch.int32)


class UsesCuda(Numbered):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index).cuda()


class Custom:
    """A batch class that pins itself, as torch lets it."""

    def __init__(self, batch: list[torch.Tensor]) -> None:
        self.images, self.pins = torch.stack(batch), 0

    def pin_memory(self) -> Custom:
        self.images, self.pins = self.images.pin_memory(), self.pins + 1
        return self


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that is free is full of other bytes at once."""
    free = SlotPool._free

    def poison(self: SlotPool, slot: Slot) -> None:
        if not self._closed:
            ctypes.memset(slot.segment.address + slot.offset, 0xEE, slot.touched)
        free(self, slot)

    monkeypatch.setattr(SlotPool, "_free", poison)


def count_wrong(batches: Iterator[Any], copy: Callable[[Any], torch.Tensor]) -> tuple[int, int]:
    """How many batches came, and how many were not on the device what they had been."""
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    first = steps = 0
    for batch in batches:
        there = copy(batch)
        length = len(batch)
        del batch
        expected = torch.arange(first, first + length, dtype=torch.int32, device="cuda")[:, None]
        wrong += (there != expected).any()
        first, steps = first + length, steps + 1
    return steps, int(wrong.item())


def on_some_stream(streams: list[Any], dice: random.Random) -> Callable[[Any], torch.Tensor]:
    def copy(batch: Any) -> torch.Tensor:
        stream = dice.choice(streams)
        with torch.cuda.stream(stream):
            if dice.random() < 0.3:
                torch.cuda._sleep(HELD_UP)
            there = batch.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        there.record_stream(torch.cuda.current_stream())
        return there

    return copy


def test_a_delivered_tensor_is_pinned() -> None:
    """No copy was made: it lies in the slot."""
    with holdfast.DataLoader(Numbered(64), batch_size=4, num_workers=2, pin_memory=True) as loader:
        for batch in loader:
            assert batch.is_pinned()
            assert batch.untyped_storage().nbytes() == batch.nbytes
        assert len(loader.incidents) == 0


@pytest.mark.usefixtures("poisoned")
@pytest.mark.timeout(300)
def test_no_slot_is_reused_early_on_several_streams() -> None:
    """Thousands of steps, on declared streams that are held up."""
    streams, dice = [torch.cuda.Stream() for _ in range(3)], random.Random(1)
    with holdfast.DataLoader(Numbered(16000), batch_size=4, num_workers=4, pin_memory=True) as loader:
        loader.streams.extend(streams)
        assert count_wrong(iter(loader), on_some_stream(streams, dice)) == (4000, 0)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.timeout(300)
def test_no_slot_is_reused_early_on_the_current_stream() -> None:
    def copy(batch: Any) -> torch.Tensor:
        torch.cuda._sleep(HELD_UP // 4)
        return batch.to("cuda", non_blocking=True)

    with holdfast.DataLoader(Numbered(16000), batch_size=4, num_workers=4, pin_memory=True) as loader:
        assert count_wrong(iter(loader), copy) == (4000, 0)


@pytest.mark.usefixtures("poisoned")
def test_without_fences_it_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two tests above look for does happen when slots are not fenced."""
    monkeypatch.setattr(CudaStreams, "fence", lambda self: CudaFence(()))
    streams, dice = [torch.cuda.Stream() for _ in range(3)], random.Random(1)
    with holdfast.DataLoader(Numbered(2000), batch_size=4, num_workers=4, pin_memory=True) as loader:
        steps, wrong = count_wrong(iter(loader), on_some_stream(streams, dice))
        torch.cuda.synchronize()
    assert steps == 500
    assert wrong > 0


@pytest.mark.usefixtures("poisoned")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ahead", [1, 2, 6])
def test_batches_arrive_on_the_device(ahead: int) -> None:
    """Whole, in order, usable on whatever stream is current, while the device is held up."""
    streams, dice = [torch.cuda.Stream() for _ in range(2)], random.Random(1)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    options: dict[str, Any] = {"device": "cuda", "prefetch_to_device": ahead}
    with holdfast.DataLoader(Numbered(8000), batch_size=4, num_workers=4, **options) as loader:
        epoch, steps = iter(loader), 0
        for number in range(len(loader)):
            stream = dice.choice(streams)
            with torch.cuda.stream(stream):
                batch = next(epoch)
                assert batch.is_cuda
                if dice.random() < 0.2:
                    torch.cuda._sleep(HELD_UP)
                expected = torch.arange(number * 4, number * 4 + 4, dtype=torch.int32, device="cuda")[:, None]
                differs = (batch != expected).any()
                del batch, expected
            torch.cuda.current_stream().wait_stream(stream)
            wrong += differs
            steps += 1
    assert (steps, int(wrong.item())) == (2000, 0)


def test_structures_and_dtypes_arrive_as_they_are() -> None:
    def collate(batch: list[torch.Tensor]) -> Any:
        stacked = torch.stack(batch)
        half, flags = stacked[:, :100].to(torch.bfloat16), stacked[:, :7] > 3
        sparse = torch.eye(3).to_sparse()
        return {"x": (half, [flags, "name"]), "last": stacked.view(len(batch), 256, -1).transpose(1, 2), "s": sparse}

    ours = holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=1, device="cuda", collate_fn=collate)
    theirs = TorchLoader(Numbered(8), batch_size=4, collate_fn=collate)
    for there, here in zip(ours, theirs, strict=True):
        assert there["x"][1][1] == "name"
        pairs = [(there["x"][0], here["x"][0]), (there["x"][1][0], here["x"][1][0]), (there["last"], here["last"])]
        for moved, tensor in pairs:
            assert moved.is_cuda
            assert (moved.dtype, moved.stride()) == (tensor.dtype, tensor.stride())
            assert torch.equal(moved.cpu(), tensor)
        assert there["s"].is_cuda
        assert torch.equal(there["s"].to_dense().cpu(), torch.eye(3))


def test_a_class_that_pins_itself_is_asked_to() -> None:
    with holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=1, pin_memory=True, collate_fn=Custom) as loader:
        for batch in loader:
            assert batch.pins == 1
            assert batch.images.is_pinned()


def test_a_refusal_falls_back_to_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real refusal: memory that is not mapped. Nothing of it is left in the user's thread."""
    register = CudaRegistrar.register
    monkeypatch.setattr(CudaRegistrar, "register", lambda self, address, nbytes: register(self, 4096, nbytes))
    monkeypatch.setattr("holdfast.loader.pinned._said", [])
    loader = holdfast.DataLoader(Numbered(32), batch_size=4, num_workers=2, pin_memory=True)
    with loader, pytest.warns(holdfast.HoldfastWarning, match="refused to pin"):
        batches = list(loader)
    assert all(batch.is_pinned() for batch in batches)
    assert [int((batch.to("cuda", non_blocking=True) + 0)[0, 0]) for batch in batches] == list(range(0, 32, 4))


def test_a_forked_child_reads_a_pinned_batch() -> None:
    """The driver has not taken the pages from it."""
    with holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=1, pin_memory=True) as loader:
        batch = next(iter(loader))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if int(batch.numpy()[3, -1]) == 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_was_unmapped_is_not_taken_for_pinned() -> None:
    """Epoch after epoch new memory lies where old memory lay: the driver must know only the new."""
    for _ in range(5):
        with holdfast.DataLoader(Numbered(64), batch_size=4, num_workers=2, pin_memory=True) as loader:
            assert count_wrong(iter(loader), lambda batch: batch.to("cuda", non_blocking=True)) == (16, 0)
        gc.collect()
    plain = torch.zeros(1 << 22)
    assert not plain.is_pinned()


def test_a_kept_batch_stays_pinned_and_whole_after_the_loader() -> None:
    loader = holdfast.DataLoader(Numbered(64), batch_size=4, num_workers=2, pin_memory=True)
    kept = list(loader)[3]
    loader.close()
    del loader
    gc.collect()
    assert kept.is_pinned()
    assert int(kept.to("cuda", non_blocking=True)[2, 5].item()) == 14


@pytest.mark.parametrize("in_init", [False, True])
def test_cuda_in_a_forked_worker_is_named(in_init: bool) -> None:
    """With the remedy."""

    def use_cuda(worker_id: int) -> None:
        torch.zeros(1).cuda()

    dataset = Numbered(8) if in_init else UsesCuda(8)
    init_fn = use_cuda if in_init else None
    loader = holdfast.DataLoader(dataset, num_workers=1, worker_init_fn=init_fn, multiprocessing_context="fork")
    with loader, pytest.raises(RuntimeError, match="Cannot re-initialize CUDA"):
        next(iter(loader))
    assert [incident.cause for incident in loader.incidents] == ["CUDA used after fork"]
    assert "spawn" in " ".join(loader.incidents[0].advice)


def test_loading_without_pinning_leaves_cuda_alone() -> None:
    """In a process of its own: neither it nor its workers have initialised anything."""
    program = (
        "import torch, holdfast\n"
        "def collate(batch): return torch.tensor([torch.cuda.is_initialized()])\n"
        "loader = holdfast.DataLoader(range(8), num_workers=2, collate_fn=collate)\n"
        "assert not any(bool(flag) for flag in loader)\n"
        "assert not torch.cuda.is_initialized()\n"
        "loader = holdfast.DataLoader(range(8), num_workers=2, collate_fn=collate, device='cuda')\n"
        "assert not any(bool(flag) for flag in loader)\n"
        "assert torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
