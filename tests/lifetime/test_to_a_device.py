"""Loaders that pin, and loaders that deliver on a device, with a device that is not there and workers that are.

What a copy reads is what lies at its address when its turn comes (`fake_device`): a slot that was used again too early
shows in the data.
"""

from __future__ import annotations

import collections
import gc
import os
import random
import signal
import types
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset

import holdfast
from fake_device import FakeDriver, FakeFence, FakeStream, FakeStreams, address_of, run_a_little
from holdfast.device.carrier import Carried
from holdfast.device.moving import Mover, change_leaves, move_all, move_others
from holdfast.loader import iterator, pinned
from waits import PATIENCE_S, wait_until

Pair = collections.namedtuple("Pair", "image label")


class Numbered(Dataset[Any]):
    """Sample k is full of k. Some of them kill their worker, once."""

    def __init__(self, length: int, width: int = 3000, deadly: frozenset[int] = frozenset(), folder: str = "") -> None:
        self.length, self.width, self.deadly, self.folder = length, width, deadly, folder

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self.deadly:
            marker = Path(self.folder, str(index))
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((self.width,), index, dtype=torch.int32)


class Raises(Numbered):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise LookupError("no such sample")
        return super().__getitem__(index)


class Structured(Numbered):
    def __getitem__(self, index: int) -> Any:
        image = super().__getitem__(index)
        return {"pair": Pair(image, index), "name": f"sample {index}", "array": np.arange(3), "same": [image, 1.5]}


class FakeCarrier(FakeStream):
    """What `CudaCarrier` is to a real device: the tensors of a batch arrive when the side stream gets to them."""

    made: ClassVar[list[FakeCarrier]] = []

    def __init__(self, device: torch.device, most_unfinished: int) -> None:
        super().__init__(DRIVERS[-1])
        self.device, self.most_unfinished = device, most_unfinished
        self.most_ahead = 0
        self.made.append(self)

    def carry(self, batch: Any, *, is_pinned: bool) -> Carried:
        moved: list[Any] = []
        assert is_pinned == all(self.driver.is_pinned(*address_of(leaf)) for leaf in tensors_of(batch))

        def move(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            arriving = self.copy(*address_of(leaf))
            moved.append(arriving)
            return torch.frombuffer(arriving, dtype=leaf.dtype).view(leaf.shape)

        mover = Mover(torch.device("meta"))
        mover.move(batch)
        carried = change_leaves(batch, move)
        return Carried(carried, [], FakeFence([self]), has_others=mover.has_others)

    def give_out(self, carried: Carried) -> Any:
        self.most_ahead = max(self.most_ahead, self.asked - self.done)
        assert carried.event.wait(60)
        return carried.batch


def tensors_of(batch: Any) -> list[torch.Tensor]:
    found: list[Any] = []
    change_leaves(batch, found.append)
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]


DRIVERS: list[FakeDriver] = []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """torch believes in an accelerator, and ours is asked wherever CUDA would be."""
    known = SimpleNamespace(driver=FakeDriver(), streams=[], declared=None, index=None)
    DRIVERS.append(known.driver)
    known.streams += [FakeStream(known.driver), FakeStream(known.driver)]

    def make_streams(declared: Any, always: Any = None, *, follows_user: bool = True) -> FakeStreams:
        known.declared = declared
        return FakeStreams(known.streams, always, follows_user=follows_user)

    def make_registrar(index: int | None) -> FakeDriver:
        known.index = index
        return known.driver

    fakes = SimpleNamespace(CudaRegistrar=make_registrar, CudaStreams=make_streams)
    monkeypatch.setattr(pinned, "cuda", fakes)
    monkeypatch.setattr(pinned, "CudaCarrier", FakeCarrier)
    monkeypatch.setattr(pinned, "_accelerator", lambda: "cuda")
    monkeypatch.setattr(pinned, "_check_available", lambda device: None)
    monkeypatch.setattr(pinned, "_said", [])
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(iterator.torch_pin, "pin_memory", lambda batch, device=None: batch)
    yield known
    DRIVERS.remove(known.driver)
    FakeCarrier.made.clear()
    assert not known.driver.registered  # nothing stays registered when the loader is gone


def numbers(start: int, count: int, width: int = 3000) -> torch.Tensor:
    return torch.arange(start, start + count, dtype=torch.int32)[:, None].expand(count, width)


@pytest.mark.parametrize("persistent", [False, True])
def test_pinned_batches_reach_the_device_as_they_were(device: SimpleNamespace, persistent: bool) -> None:
    """On two streams that get on as they like, over epochs."""
    dice = random.Random(1)
    loader = holdfast.DataLoader(
        Numbered(1200), batch_size=4, num_workers=2, pin_memory=True, persistent_workers=persistent
    )
    arriving = []
    for _ in range(2):
        for batch in loader:
            arriving.append(dice.choice(device.streams).copy(*address_of(batch)))
            del batch
            run_a_little(device.streams, dice)
    loader.close()
    for stream in device.streams:
        stream.run(10**6)
    for number, arrived in enumerate(arriving):
        batch = torch.frombuffer(arrived, dtype=torch.int32).view(4, -1)
        assert torch.equal(batch, numbers(number % 300 * 4, 4)), number


def test_slots_are_registered_once_in_an_epoch(device: SimpleNamespace) -> None:
    with holdfast.DataLoader(Numbered(1200), batch_size=4, num_workers=2, pin_memory=True) as loader:
        for batch in loader:
            assert device.driver.is_pinned(*address_of(batch))
            del batch
    registrations = [address for call, address in device.driver.calls if call == "register"]
    assert len(registrations) < 40


@pytest.mark.parametrize("options", [{"pin_memory": True}, {"device": "cuda"}])
def test_streams_are_declared_on_the_loader(device: SimpleNamespace, options: dict[str, Any]) -> None:
    """The list itself is looked at, whenever a batch is let go."""
    loader = holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=1, **options)
    for _ in loader:
        assert device.declared is loader.streams


@pytest.mark.filterwarnings("ignore:.*pin_memory_device")
@pytest.mark.parametrize(
    ("options", "index"),
    [
        ({"pin_memory": True}, None),
        ({"pin_memory": True, "pin_memory_device": "cuda"}, None),
        ({"pin_memory": True, "pin_memory_device": "cuda:1"}, 1),
        ({"device": "cuda"}, None),
        ({"device": "cuda:1"}, 1),
    ],
)
def test_memory_is_registered_for_the_device_that_was_named(
    device: SimpleNamespace, options: dict[str, Any], index: int | None
) -> None:
    """None: for the one that is current in the user's thread."""
    with holdfast.DataLoader(Numbered(8), batch_size=4, num_workers=1, **options) as loader:
        assert len(list(loader)) == 2
    assert device.index == index


def test_a_refusal_is_said_once_and_batches_come_as_torch_pins_them(device: SimpleNamespace) -> None:
    device.driver.most_bytes = 0
    loader = holdfast.DataLoader(Numbered(80), batch_size=4, num_workers=2, pin_memory=True)
    with loader, pytest.warns(holdfast.HoldfastWarning, match="refused to pin .* out of memory") as said:
        batches = [batch.clone() for batch in loader]
    assert len(said) == 1
    assert torch.equal(torch.cat(batches), numbers(0, 80))


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_batches_arrive_on_the_device_in_order(device: SimpleNamespace, depth: int) -> None:
    """Copied ahead, as far as was asked for and they were there."""
    options: dict[str, Any] = {"device": "cuda", "prefetch_to_device": depth}
    with holdfast.DataLoader(Numbered(1200), batch_size=4, num_workers=2, **options) as loader:
        for number, batch in enumerate(loader):
            assert torch.equal(batch, numbers(number * 4, 4)), number
    assert number == 299
    assert 1 <= FakeCarrier.made[0].most_ahead <= depth + 1


def with_an_array(samples: list[torch.Tensor]) -> dict[str, Any]:
    stacked = torch.stack(samples)
    return {"tensor": stacked, "array": stacked.numpy().copy()}


def test_what_stays_in_a_slot_is_whole_when_the_user_copies_it(device: SimpleNamespace) -> None:
    """An array is not moved: it lies in pinned memory, from which the user copies it on streams of his own."""
    dice, arriving = random.Random(1), []
    options: dict[str, Any] = {"num_workers": 2, "device": "cuda", "collate_fn": with_an_array}
    with holdfast.DataLoader(Numbered(1200), batch_size=4, **options) as loader:
        for batch in loader:
            arriving.append(dice.choice(device.streams).copy(*address_of(batch["array"])))
            del batch
            run_a_little(device.streams, dice)
    for stream in device.streams:
        stream.run(10**6)
    for number, arrived in enumerate(arriving):
        batch = torch.frombuffer(arrived, dtype=torch.int32).view(4, -1)
        assert torch.equal(batch, numbers(number * 4, 4)), number


def test_workers_that_die_change_nothing_on_the_device(device: SimpleNamespace, tmp_path: Any) -> None:
    deadly = frozenset({17, 100, 101, 333})
    dataset = Numbered(400, deadly=deadly, folder=str(tmp_path))
    with holdfast.DataLoader(dataset, batch_size=4, num_workers=2, device="cuda") as loader:
        batches = list(loader)
        assert loader.stats().restarts == len(deadly)
    assert torch.equal(torch.cat(batches), numbers(0, 400))


def test_an_exception_comes_at_its_place_and_the_next_batch_after_it(device: SimpleNamespace) -> None:
    with holdfast.DataLoader(Raises(16), batch_size=2, num_workers=2, device="cuda") as loader:
        batches, epoch = [], iter(loader)
        for _ in range(2):
            batches.append(next(epoch))
        with pytest.raises(LookupError):
            next(epoch)
        batches.extend(epoch)
    assert [int(batch[0, 0]) for batch in batches] == [0, 2, 6, 8, 10, 12, 14]


def test_a_copy_that_fails_is_an_exception_at_its_place(
    device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's memory is full, say, when a batch is copied ahead: those before it are good, and come first."""
    carry, carried = FakeCarrier.carry, []

    def fail_once(self: FakeCarrier, batch: Any, *, is_pinned: bool) -> Carried:
        carried.append(int(batch[0, 0]))
        if carried[-1] == 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return carry(self, batch, is_pinned=is_pinned)

    monkeypatch.setattr(FakeCarrier, "carry", fail_once)
    with holdfast.DataLoader(Numbered(24), batch_size=4, num_workers=2, device="cuda") as loader:
        epoch = iter(loader)
        wait_until_all_are_there(epoch)
        batches = [next(epoch) for _ in range(2)]
        with pytest.raises(torch.OutOfMemoryError):
            next(epoch)
        batches.extend(epoch)
    assert [int(batch[0, 0]) for batch in batches] == [0, 4, 12, 16, 20]


def test_an_iterator_that_is_dropped_with_an_exception_ahead_is_gone(device: SimpleNamespace) -> None:
    """At once, and not when the collector of cycles runs: its workers end with it."""
    loader = holdfast.DataLoader(Raises(16), batch_size=2, num_workers=2, device="cuda")
    epoch = iter(loader)
    wait_until_all_are_there(epoch)
    next(epoch)
    assert isinstance(epoch._ahead[-1], LookupError)
    dropped = weakref.ref(epoch)
    gc.disable()
    try:
        del epoch
        assert dropped() is None
    finally:
        gc.enable()
        loader.close()


def wait_until_all_are_there(epoch: Any) -> None:
    """As many as are loaded ahead: then batches are copied as far ahead as they may be."""
    expected = list(epoch._schedule.expected())

    def are_there() -> bool:
        epoch._take_in_all(epoch._backend.wait(0.01))
        return all(epoch._units[unit].is_finished for unit in expected)

    wait_until(are_there, PATIENCE_S, "the batches that are loaded ahead")


@pytest.mark.parametrize("where", ["carry", "give_out"])
def test_an_interrupt_loses_no_batch(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """While a copy is started, or waited for: whoever asks again gets what he would have got."""
    method, calls = getattr(FakeCarrier, where), []

    def interrupt(self: FakeCarrier, batch: Any, **options: Any) -> Any:
        calls.append(where)
        if len(calls) in {1, 4}:
            raise KeyboardInterrupt
        return method(self, batch, **options)

    monkeypatch.setattr(FakeCarrier, where, interrupt)
    batches, interrupts = [], 0
    with holdfast.DataLoader(Numbered(40), batch_size=4, num_workers=2, device="cuda") as loader:
        epoch = iter(loader)
        while len(batches) < 10:
            try:
                batches.append(next(epoch))
            except KeyboardInterrupt:
                interrupts += 1
        with pytest.raises(StopIteration):
            next(epoch)
    assert torch.equal(torch.cat(batches), numbers(0, 40))
    assert interrupts == 2


@pytest.mark.parametrize("where", ["carry", "give_out"])
def test_an_interrupt_leaves_no_worker(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Though the iterator is kept, as by the traceback that a notebook keeps."""
    with holdfast.DataLoader(Numbered(400), batch_size=4, num_workers=2, device="cuda") as loader:
        epoch = iter(loader)
        next(epoch)
        pids = epoch._worker_pids().values()
        assert len(pids) == 2
        monkeypatch.setattr(FakeCarrier, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(epoch)
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), PATIENCE_S, "the end of the workers")


def test_nor_does_one_while_a_batch_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.DataLoader(Numbered(400), batch_size=4, num_workers=2, device="meta") as loader:
        epoch = iter(loader)
        next(epoch)
        pids = epoch._worker_pids().values()
        assert len(pids) == 2
        monkeypatch.setattr(pinned, "move_all", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(epoch)
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), PATIENCE_S, "the end of the workers")


def interrupt(*args: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


def test_an_epoch_that_is_left_early_is_followed_by_a_whole_one(device: SimpleNamespace) -> None:
    with holdfast.DataLoader(
        Numbered(64), batch_size=4, num_workers=2, device="cuda", persistent_workers=True
    ) as loader:
        batch = next(iter(loader))
        assert torch.equal(torch.cat(list(loader)), numbers(0, 64))
        assert torch.equal(batch, numbers(0, 4))


def test_a_closed_loader_gives_nothing_more(device: SimpleNamespace) -> None:
    loader = holdfast.DataLoader(Numbered(64), batch_size=4, num_workers=2, device="cuda")
    epoch = iter(loader)
    next(epoch)
    loader.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(epoch)


@pytest.mark.parametrize("options", [{"pin_memory": True}, {"device": "cuda"}])
def test_a_forked_process_is_told_that_the_iterator_is_not_its_own(
    device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """And not that CUDA cannot be used there; nor is it given a batch that is on a device which it does not have."""
    owner = os.getpid()

    def prepare(self: FakeDriver) -> None:
        assert os.getpid() == owner, "Cannot re-initialize CUDA in forked subprocess"

    monkeypatch.setattr(FakeDriver, "prepare", prepare)
    with holdfast.DataLoader(Numbered(64), batch_size=4, num_workers=2, **options) as loader:
        epoch = iter(loader)
        next(epoch)
        pid = os.fork()
        if pid == 0:
            said = ""
            try:
                next(epoch)
            except BaseException as error:
                said = str(error)
            os._exit(0 if "belongs to the process it was made in" in said else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_structure_and_what_is_no_tensor_stay_as_they_are(device: SimpleNamespace) -> None:
    def alike(batch: Any) -> Any:
        return change_leaves(batch, lambda leaf: leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf)

    plain = list(holdfast.DataLoader(Structured(8, 5), batch_size=2, num_workers=1))
    there = list(holdfast.DataLoader(Structured(8, 5), batch_size=2, num_workers=1, device="cuda"))
    assert [str(alike(batch)) for batch in plain] == [str(alike(batch)) for batch in there]
    assert type(there[0]["pair"]) is Pair


# -- without any device, not even one that is not there ----------------------------------------------------------------


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
