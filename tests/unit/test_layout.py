"""What a batch costs on its way: nothing is copied twice, nothing that is not asked for, and any size has its place."""

from __future__ import annotations

import io
import marshal
import os
import pickle
import subprocess
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.transport import layout
from holdfast.transport.slots import SlotPool

from .one_process import begun, receive, travel

MB = 1 << 20


def used_by(batch: object, pool: SlotPool) -> int:
    """The bytes that a batch takes in its slot and beyond."""
    slot = pool.acquire()
    writer = begun(slot)
    layout.encode(batch, writer)
    used = sum(writer.used_bytes())
    writer.end()
    pool.release(slot)
    return used


# --- copies -------------------------------------------------------------------------------------------------------


def test_a_tensor_built_in_the_slot_is_not_copied() -> None:
    """What collate wrote is what the user reads: the same bytes, no more space used."""
    pool = SlotPool(warm_slots=4)
    slot = pool.acquire()
    writer = begun(slot)
    built = writer.tensor(torch.float32, (100, 10), 4000)
    built.fill_(3)
    packed = layout.encode({"x": built, "row": built[5]}, writer)
    assert writer.used_bytes() == [4000]
    slot.peek(40, 4)[:] = np.float32(7).tobytes()  # after the encoding: a copy would not show it
    batch = receive(packed, writer, slot, pool)
    assert batch["x"][1, 0] == 7
    assert batch["x"][1, 1] == 3
    assert torch.equal(batch["row"], torch.full((10,), 3.0))
    pool.close()


def test_a_tensor_built_in_a_spilled_area_is_not_copied() -> None:
    """Also a batch that outgrew its slot is written once."""
    pool = SlotPool(warm_slots=4)
    slot = pool.acquire()
    writer = begun(slot)
    built = writer.tensor(torch.uint8, (3 * MB,), 3 * MB)
    built.fill_(9)
    packed = layout.encode(built, writer)
    assert writer.used_bytes() == [0, 3 * MB]
    del built
    assert receive(packed, writer, slot, pool).sum() == 9 * 3 * MB
    pool.close()


def test_only_the_bytes_that_a_batch_refers_to_are_copied() -> None:
    """Ten rows out of a large storage are ten rows in the slot."""
    pool = SlotPool(warm_slots=4)
    large = torch.arange(4 * MB, dtype=torch.int32).reshape(-1, 1024)
    assert used_by(large[500:510], pool) <= 10 * 4096 + 64
    assert used_by([large[500:505], large[505:510]], pool) <= 10 * 4096 + 64
    received = travel(large[500:510], pool)
    assert received.untyped_storage().nbytes() <= 10 * 4096 + 64
    assert torch.equal(received, large[500:510])
    pool.close()


@pytest.mark.parametrize("view", ["transposed", "every second", "a column", "channels last"])
def test_a_strided_tensor_is_copied_from_its_first_byte_to_its_last(view: str) -> None:
    """With its strides, and not a byte beyond what it looks at."""
    pool = SlotPool(warm_slots=4)
    base = torch.arange(10_000.0).reshape(100, 100)
    tensor, nbytes = {
        "transposed": (base.T, 40_000),
        "every second": (base[::2], 99 * 400),
        "a column": (base[:, 3], 99 * 400 + 4),
        "channels last": (base.reshape(1, 4, 50, 50).to(memory_format=torch.channels_last), 40_000),
    }[view]
    assert nbytes <= used_by(tensor, pool) < nbytes + 16
    received = travel(tensor, pool)
    assert received.stride() == tensor.stride()
    assert torch.equal(received, tensor)
    pool.close()


def test_views_that_begin_anywhere_in_a_storage_stay_aligned() -> None:
    """Bytes from an odd place on, and numbers of eight bytes from a later one, in one range of the slot."""
    pool = SlotPool(warm_slots=4)
    base = torch.arange(160, dtype=torch.uint8)
    views = [base[21:40], base[24:].view(torch.int64), base[32:].view(torch.complex128)]
    for received, view in zip(travel(views, pool), views, strict=True):
        assert torch.equal(received, view)
        assert received.data_ptr() % view.element_size() == 0
    pool.close()


def test_an_expanded_tensor_is_sent_as_what_it_is_made_of() -> None:
    """A million elements over one number take one number."""
    pool = SlotPool(warm_slots=4)
    assert used_by(torch.ones(1).expand(1000, 1000), pool) <= 64
    received = travel(torch.ones(1).expand(1000, 1000), pool)
    assert received.stride() == (0, 0)
    assert received.sum() == 1_000_000
    pool.close()


def test_a_tensor_that_is_in_a_batch_twice_is_sent_once() -> None:
    """The same object twice, and two views of one storage: one range."""
    pool = SlotPool(warm_slots=4)
    tensor = torch.ones(10_000)
    assert used_by([tensor, tensor, tensor.view(100, 100)], pool) <= 40_000 + 64
    first, second, third = travel([tensor, tensor, tensor.view(100, 100)], pool)
    assert first is second
    third[0, 0] = 5
    assert first[0] == 5
    pool.close()


def test_saving_a_delivered_tensor_saves_the_tensor_and_not_the_slot() -> None:
    """torch.save writes whole storages: each tensor has one of its own."""
    pool = SlotPool(warm_slots=4)
    batch = travel([torch.ones(100), torch.ones(200_000)], pool)
    file = io.BytesIO()
    torch.save(batch[0], file)
    assert len(file.getvalue()) < 10_000
    pool.close()


# --- sizes --------------------------------------------------------------------------------------------------------


def test_a_batch_larger_than_its_slot_arrives_whole() -> None:
    """One part after another is spilled; what fitted before it stays in the slot."""
    pool = SlotPool(warm_slots=4)
    parts = [torch.full((size,), k, dtype=torch.uint8) for k, size in enumerate((1000, 3 * MB, 500, 40 * MB, 7))]
    for received, part in zip(travel(parts, pool), parts, strict=True):
        assert torch.equal(received, part)
    pool.close()


def test_a_layout_that_is_too_large_for_a_message_goes_into_the_slot() -> None:
    """A thousand tensors: the description alone is over 16 kB."""
    pool = SlotPool(warm_slots=4)
    batch = {f"tensor number {k}": torch.tensor([k, -k]) for k in range(1000)}
    slot = pool.acquire()
    writer = begun(slot)
    packed = layout.encode(batch, writer)
    assert not isinstance(packed, bytes)
    area, _, nbytes = packed
    assert (area, nbytes > 16 * 1024) == (0, True)
    received = receive(packed, writer, slot, pool)
    assert all(torch.equal(received[name], tensor) for name, tensor in batch.items())
    assert received.keys() == batch.keys()
    pool.close()


def test_a_layout_larger_than_the_slot_is_spilled() -> None:
    """Five megabytes of strings, in a slot of one."""
    pool = SlotPool(warm_slots=4)
    batch = [f"{k:>10000}" for k in range(500)]
    assert travel(batch, pool) == batch
    assert travel([batch, torch.ones(3)], pool)[0] == batch
    pool.close()


@pytest.mark.parametrize("batch", [b"b" * 5 * MB, "ä" * 5 * MB, [b"b" * 3 * MB, torch.ones(3), "c" * 3 * MB]], ids=type)
def test_bytes_and_text_may_be_larger_than_what_marshal_takes(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit is 2 GiB, here 1 MiB."""

    def dumps(value: tuple[Any, ...]) -> bytes:
        if any(isinstance(part, bytes) and len(part) > MB for part in value):
            raise ValueError("unmarshallable object")
        return marshal.dumps(value)

    monkeypatch.setattr(layout, "marshal", types.SimpleNamespace(dumps=dumps, loads=marshal.loads))
    pool = SlotPool(warm_slots=4)
    assert str(travel(batch, pool)) == str(batch)
    pool.close()


@pytest.mark.parametrize("batch", [None, 3, "text", [], {}, (1, "a", b"b"), torch.float32])
def test_a_batch_without_tensors_takes_no_slot(batch: object) -> None:
    """Its slot is free as soon as it is delivered."""
    pool = SlotPool(warm_slots=4)
    assert used_by(batch, pool) == 0
    received = travel(batch, pool)
    assert received == batch
    assert not pool.in_use()
    pool.close()


def test_an_array_of_a_thousand_bytes_stays_in_the_pickle_and_a_larger_one_does_not() -> None:
    """Small things are cheaper inside the message."""
    pool = SlotPool(warm_slots=4)
    assert used_by(np.zeros(1000, np.uint8), pool) == 0
    assert used_by(np.zeros(2000, np.uint8), pool) == 2000
    pool.close()


# --- particular tensors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_stays_channels_last(channels: int) -> None:
    """Also with a single channel, where only the strides tell, and a convolution goes by them."""
    pool = SlotPool(warm_slots=4)
    images = torch.rand(2, channels, 4, 4).to(memory_format=torch.channels_last)
    received = travel(images, pool)
    assert received.stride() == images.stride()
    assert torch.equal(received, images)
    pool.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16, torch.float8_e5m2])
def test_a_tensor_with_an_attribute_arrives(dtype: torch.dtype) -> None:
    """torch's loader delivers it, of every dtype (and drops the attribute)."""
    pool = SlotPool(warm_slots=4)
    tensor = torch.arange(8, dtype=torch.uint8).view(dtype)
    tensor.mark = "attribute"  # type: ignore[attr-defined]
    received = travel([tensor], pool)[0]
    assert received.dtype == dtype
    assert torch.equal(received.view(torch.uint8), tensor.view(torch.uint8))
    pool.close()


def test_two_storages_over_one_piece_of_memory_arrive_as_two() -> None:
    """torch.from_numpy of an array and of its beginning: the same address, other lengths."""
    pool = SlotPool(warm_slots=4)
    array = np.arange(100.0)
    batch = [torch.from_numpy(array[:3]), torch.from_numpy(array), torch.from_numpy(array[10:20])]
    for received, tensor in zip(travel(batch, pool), batch, strict=True):
        assert torch.equal(received, tensor)
    pool.close()


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_plain_tensor_and_its_conjugate_arrive_together(order: list[int]) -> None:
    """One is described, the other rebuilt around the whole storage: both are on the same one."""
    pool = SlotPool(warm_slots=4)
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    pair = [tensor, tensor.conj()]
    received = travel([pair[k] for k in order], pool)
    assert torch.equal(received[order.index(0)], tensor)
    assert torch.equal(received[order.index(1)], tensor.conj())
    assert received[0].data_ptr() == received[1].data_ptr()
    pool.close()


@pytest.mark.long
@pytest.mark.parametrize("layout_name", ["sparse_coo", "sparse_csr"])
def test_torch_does_not_warn_of_checks_that_nobody_asked_for(layout_name: str) -> None:
    """Where a sparse tensor is rebuilt without a word about them. It says so once in a process: hence a new one."""
    code = f"""
import warnings, torch
from unit.one_process import travel
from holdfast.transport.slots import SlotPool
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # of layouts that are new, and of what the sender does
    sent = torch.eye(3).to_sparse(layout=torch.{layout_name})
checks = torch.sparse.check_sparse_tensor_invariants
before = checks.is_enabled()
received = travel(sent, SlotPool(2))
assert checks.is_enabled() == before and torch.equal(received.to_dense(), torch.eye(3))
"""
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize("layout_name", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors_arrive_sparse_and_leave_with_the_user(layout_name: str) -> None:
    """Their parts are views of the slot, and nothing else keeps them."""
    pool = SlotPool(warm_slots=4)
    dense = torch.eye(50)
    sparse = dense.to_sparse(layout=getattr(torch, layout_name))
    received = travel(sparse, pool)
    assert received.layout == sparse.layout
    assert torch.equal(received.to_dense(), dense)
    assert pool.in_use()
    del received
    pool.collect()
    assert not pool.in_use()
    pool.close()


def test_a_tensor_that_needs_the_graph_is_refused_in_torchs_words() -> None:
    """The result of a computation that requires grad cannot cross a process: RuntimeError, as torch has it."""
    pool = SlotPool(warm_slots=4)
    result = torch.ones(3, requires_grad=True) * 2
    for batch in (result, [result], {"sparse": result.to_sparse()}):
        with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
            layout.encode(batch, begun(pool.acquire()))
    pool.close()


def test_a_users_error_while_pickling_is_his_own() -> None:
    """What __reduce__ raises comes out as it is."""
    pool = SlotPool(warm_slots=4)
    with pytest.raises(KeyError, match="my own"):
        layout.encode([torch.ones(3), Unwilling()], begun(pool.acquire()))
    pool.close()


class Unwilling:
    def __reduce__(self) -> tuple[Any, ...]:
        raise KeyError("my own")


# --- objects ------------------------------------------------------------------------------------------------------


def test_a_class_that_can_be_imported_arrives_as_that_class() -> None:
    """By reference: isinstance holds in the main process."""
    pool = SlotPool(warm_slots=4)
    received = travel([Point(torch.ones(3))], pool)
    assert type(received[0]) is Point
    assert torch.equal(received[0].x, torch.ones(3))
    pool.close()


def test_what_cannot_be_looked_up_arrives_by_value() -> None:
    """A lambda, a local class and a tensor in one batch: nothing is sent twice for the second attempt's sake."""
    pool = SlotPool(warm_slots=4)

    class Local:
        def __init__(self, value: Any) -> None:
            self.value = value

    increment = 5
    batch = [torch.ones(1000), lambda x: x + increment, Local(np.arange(1000))]
    tensor, function, local = travel(batch, pool)
    assert torch.equal(tensor, torch.ones(1000))
    assert function(1) == 6
    assert local.value.sum() == sum(range(1000))
    pool.close()


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x


class Loads:
    """Loading it loads another batch: the user's own code may do so."""

    packed: Any

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __setstate__(self, state: dict[str, Any]) -> None:
        other = SlotPool(warm_slots=1)
        self.inner = travel([torch.full((4,), 2.0), np.full(1000, 3.0)], other)
        self.__dict__.update(state)
        other.close()


def test_loading_a_batch_may_load_another() -> None:
    """The places of one batch's tensors are not those of the other's."""
    pool = SlotPool(warm_slots=4)
    first, loads, last = travel([torch.zeros(4), Loads(torch.ones(4)), torch.full((4,), 5.0)], pool)
    assert [first[0], loads.tensor[0], last[0]] == [0, 1, 5]
    assert [loads.inner[0][0], loads.inner[1][0]] == [2, 3]
    pool.close()


def test_batches_are_rebuilt_in_several_threads_at_once() -> None:
    """Two loaders in two threads: each rebuilds its own."""
    wrong: list[int] = []

    def run(value: int) -> None:
        pool = SlotPool(warm_slots=2)
        for k in range(50):
            tensor, array = travel([torch.full((50,), value + k), np.full(500, value - k)], pool)
            if not (tensor == value + k).all() or not (array == value - k).all():
                wrong.append(k)
        pool.close()

    threads = [threading.Thread(target=run, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_batch_whose_loading_fails_gives_its_slot_back() -> None:
    """The user's class raises while it is rebuilt: the error is his, the slot is ours again."""
    pool = SlotPool(warm_slots=4)
    with pytest.raises(ValueError, match="will not load"):
        travel([torch.ones(1000), FailsToLoad()], pool)
    pool.collect()
    assert not pool.in_use()
    pool.close()


class FailsToLoad:
    def __reduce__(self) -> tuple[Any, ...]:
        return _fail_to_load, ()


def _fail_to_load() -> None:
    raise ValueError("will not load")


# --- arrays -------------------------------------------------------------------------------------------------------


def test_a_delivered_array_can_be_written() -> None:
    """As one that came through torch's loader, whatever the flags of the original."""
    pool = SlotPool(warm_slots=4)
    array = np.arange(1000)
    array.flags.writeable = False
    received = travel({"array": array}, pool)["array"]
    received[0] = 77
    assert received[0] == 77
    assert array[0] == 0
    pool.close()


def test_arrays_of_python_objects_travel_with_their_objects() -> None:
    """They have no bytes of their own."""
    pool = SlotPool(warm_slots=4)
    array = np.array([{"a": 1}, None, "text"] * 500, dtype=object)
    assert travel(array, pool).tolist() == array.tolist()
    pool.close()


def test_a_subclass_of_array_stays_one() -> None:
    """A masked array keeps its mask, a record array its fields."""
    pool = SlotPool(warm_slots=4)
    masked = np.ma.masked_array(np.arange(1000), mask=[False, True] * 500)
    records = np.zeros(500, dtype=[("a", "i4"), ("b", "f8")]).view(np.recarray)
    got_masked, got_records = travel([masked, records], pool)
    assert type(got_masked) is np.ma.MaskedArray
    assert got_masked.sum() == masked.sum()
    assert type(got_records) is np.recarray
    assert got_records.b.sum() == 0
    pool.close()


def test_bytes_that_a_class_pickles_out_of_band_lie_in_the_slot() -> None:
    """Protocol 5 in general, not numpy alone."""
    pool = SlotPool(warm_slots=4)
    blob = bytes(range(256)) * 100
    assert used_by(pickle.PickleBuffer(blob), pool) == len(blob)
    assert bytes(travel(pickle.PickleBuffer(blob), pool)) == blob
    pool.close()
