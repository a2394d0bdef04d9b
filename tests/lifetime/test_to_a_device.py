"""Loaders that pin, and loaders that deliver on a device, with a device that is not there and workers that are.

What a copy reads is what lies at its address when its turn comes (`fake_device`): a slot that was used again too early
shows in the data.
"""

from __future__ import annotations

import collections
import gc
import os
import random
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest
import torch

import holdfast
from fake_device import FakeDriver, FakeFence, FakeStream, FakeStreams, address_of, run_a_little
from holdfast.device.carrier import Carried
from holdfast.device.moving import Mover, change_leaves
from holdfast.loader import iterator, pinned
from numbered import Numbered, numbers
from waits import PATIENCE_S, wait_until

Pair = collections.namedtuple("Pair", "image label")


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
