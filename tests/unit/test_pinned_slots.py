"""Pinned slots on a device that is not there: registered once, never reused too early, let go in the right order."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from fake_device import FakeDriver, FakeStream, FakeStreams, address_of, run_a_little
from holdfast.device.pinned_slots import PinnedSlot, PinnedSlotPool
from holdfast.device.registering import State
from holdfast.transport.segments import PAGE, Segment
from holdfast.transport.slots import Slot
from waits import PATIENCE_S, wait_until

from .slots_in_hand import MB, bytes_of, tensor_in, write


class Bench:
    """A pool, a driver and two streams."""

    def __init__(self, warm_slots: int = 4, most_bytes: int | None = None) -> None:
        self.driver = FakeDriver(most_bytes)
        self.streams = [FakeStream(self.driver), FakeStream(self.driver)]
        self.known = FakeStreams(self.streams)
        self.pool = PinnedSlotPool(warm_slots, self.driver, self.known)

    def fill(self, nbytes: int = PAGE, byte: bytes = b"x") -> Slot:
        """As far as the main process knows when a batch has arrived."""
        slot = self.pool.acquire(nbytes)
        write(slot, nbytes, byte)
        self.pool.arrived([slot], [nbytes])
        self.pool.saw_batch(nbytes)
        return slot

    def deliver(self, nbytes: int = PAGE, byte: bytes = b"x") -> Any:
        slot = self.fill(nbytes, byte)
        self.is_pinned = self.pool.finish([slot])
        view = tensor_in(self.pool, slot, 0, nbytes)
        self.pool.delivered(slot)
        return view

    def registrations(self) -> int:
        return sum(call == "register" for call, _ in self.driver.calls)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.pool.close()


def test_a_delivered_batch_is_pinned(bench: Bench) -> None:
    """All of it, by the time it is in the user's hands."""
    batch = bench.deliver(3 * MB)
    assert bench.is_pinned
    assert bench.driver.is_pinned(*address_of(batch))


def test_a_slot_is_registered_once(bench: Bench) -> None:
    """However many batches travel in it."""
    places = {address_of(bench.deliver(MB))[0] for _ in range(50)}
    assert bench.registrations() == len(places) <= 3


def test_a_slot_is_not_used_while_a_copy_may_read_it(bench: Bench) -> None:
    """The batch is gone, the copy is not made yet: the next batch must lie elsewhere."""
    batch = bench.deliver()
    where, nbytes = address_of(batch)
    bench.streams[1].copy(where, nbytes)
    del batch
    others = [bench.deliver() for _ in range(4)]
    assert where not in [address_of(other)[0] for other in others]
    bench.streams[1].run(1)
    assert where in [address_of(bench.deliver())[0]]


@pytest.mark.parametrize("seed", range(5))
def test_what_arrives_is_what_was_in_the_batch(seed: int) -> None:
    """Thousands of batches, on two streams that get on as they like, some of the batches kept for a while."""
    bench, dice = Bench(), random.Random(seed)
    expected: list[tuple[bytearray, bytes]] = []
    kept: list[Any] = []
    for step in range(2000):
        byte = bytes([step % 251])
        batch = bench.deliver(dice.choice((64, PAGE, 3 * PAGE)), byte)
        expected.append((dice.choice(bench.streams).copy(*address_of(batch)), byte))
        kept.append(batch)
        del batch, kept[: dice.randrange(len(kept) + 1)]
        run_a_little(bench.streams, dice)
    kept.clear()
    bench.pool.close()
    for stream in bench.streams:
        stream.run(10**6)
    assert all(bytes(arrived) == byte * len(arrived) for arrived, byte in expected)
    assert not bench.driver.registered


def test_who_runs_ahead_of_the_device_waits_for_it(bench: Bench) -> None:
    """The pool does not grow for ever behind a device that is slow."""
    for _ in range(100):
        bench.streams[0].copy(*address_of(bench.deliver()))
    assert len(bench.driver.registered) < 20


def test_how_far_ahead_one_may_run_does_not_grow_with_the_pool() -> None:
    """Many workers need many slots, but not because the device is slow."""
    bench = Bench(warm_slots=100)
    for _ in range(100):
        bench.streams[0].copy(*address_of(bench.deliver()))
    assert len(bench.driver.registered) < 20
    bench.pool.close()


def test_memory_that_the_device_is_done_with_counts_as_free(bench: Bench) -> None:
    """Also if no slot is wanted: whether there is memory for one may depend on it."""
    batch = bench.deliver(MB)
    bench.streams[0].copy(*address_of(batch))
    del batch
    bench.pool.collect()
    given_out, free = bench.pool.memory_bytes()
    assert given_out >= MB
    assert free == 0
    bench.streams[0].run(1)
    assert bench.pool.memory_bytes() == (0, given_out)


def test_memory_is_registered_when_a_batch_lies_in_it_and_not_before(bench: Bench) -> None:
    """Pages that nobody has touched take the driver nine times as long."""
    bench.deliver()
    slots = [bench.pool.acquire() for _ in range(5)]
    assert bench.registrations() == 1
    bench.pool.arrived(slots, [PAGE] * 5)
    assert bench.pool.finish(slots)
    assert bench.registrations() == 5
    for slot in slots:
        bench.pool.release(slot)


def test_a_device_that_hangs_makes_the_pool_grow_and_nothing_hang(monkeypatch: Any) -> None:
    """Its slots are let go, with their mapping, when it is well again."""
    monkeypatch.setattr("holdfast.device.pinned_slots._WAIT_AT_CLOSE_S", 0.1)
    bench = Bench()
    bench.streams[0].hangs = True
    places = set()
    for _ in range(20):
        batch = bench.deliver()
        places.add(address_of(batch)[0])
        bench.streams[0].copy(*address_of(batch))
        del batch
    assert len(places) == 20
    bench.pool.close()
    assert len(bench.driver.registered) == 20
    bench.streams[0].hangs = False
    del bench.pool
    gc.collect()
    assert not bench.driver.registered


def test_a_device_that_has_failed_keeps_no_pool_from_closing() -> None:
    """As by an assert in a kernel of the user's: that is the exception for him to read. Its memory stays as it is."""
    bench = Bench()
    batches = [bench.deliver() for _ in range(4)]
    for batch in batches:
        bench.streams[0].copy(*address_of(batch))
    del batch, batches[0]
    bench.pool.collect()  # fenced before it fails
    del batches[0]  # not looked at yet
    bench.streams[0].has_failed = True
    bench.pool.close()
    assert len(bench.driver.registered) == 4
    batches.clear()
    assert len(bench.driver.registered) == 4
    del bench.pool
    gc.collect()
    assert len(bench.driver.registered) == 4
    bench.streams[0].has_failed = False
    Segment.create(PAGE).close_fd()
    assert not bench.driver.registered


def test_who_is_told_no_is_told_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time he is woken: the reason is said once, and an empty one would be all that is ever said."""
    bench.driver.most_bytes = 0
    bench.driver.may_register.clear()
    slot = bench.fill()
    assert isinstance(slot, PinnedSlot)
    pin, registering = slot.pin, bench.pool._registering
    assert pin is not None
    notify_all, reasons = registering._changed.notify_all, []

    def notify() -> None:
        if pin.state is State.REFUSED:
            reasons.append(registering.refusal)
        notify_all()

    monkeypatch.setattr(registering._changed, "notify_all", notify)
    bench.driver.may_register.set()
    assert not bench.pool.finish([slot])
    wait_until(lambda: reasons, PATIENCE_S, "the refusal")
    assert all("out of memory" in reason for reason in reasons)
    bench.pool.release(slot)


def test_what_the_driver_refuses_is_not_pinned_and_nothing_is_asked_again() -> None:
    """Its words are kept for the user."""
    bench = Bench(most_bytes=3 * MB)
    batches = [bench.deliver(MB) for _ in range(6)]
    pinned = [bench.driver.is_pinned(*address_of(batch)) for batch in batches]
    assert pinned[0]
    assert not pinned[-1]
    assert "out of memory" in bench.pool.refusal
    asked = bench.registrations()
    batches.append(bench.deliver(MB))
    assert bench.registrations() == asked
    batches.clear()
    bench.pool.close()
    assert not bench.driver.registered


def test_a_batch_is_pinned_whole_or_not_at_all() -> None:
    """A larger batch in a slot that was registered for a smaller one, where no more is allowed."""
    bench = Bench(warm_slots=1)
    slot = bench.pool.acquire(MB)
    write(slot, 8)
    bench.pool.arrived([slot], [8])
    assert bench.pool.finish([slot])
    assert isinstance(slot, PinnedSlot)
    slot.pin.nbytes = PAGE  # type: ignore[union-attr]
    bench.driver.most_bytes = 0
    write(slot, MB)
    bench.pool.arrived([slot], [MB])
    assert not bench.pool.finish([slot])
    assert not bench.driver.registered
    bench.pool.release(slot)
    bench.pool.close()


def test_pages_of_a_registered_slot_are_never_given_back(bench: Bench, monkeypatch: Any) -> None:
    """The device would go on reading the old ones: it is unregistered first."""
    given_back: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "holdfast.transport.segments._give_back",
        lambda memory, start, stop: given_back.append((_address(memory) + start, _address(memory) + stop)) or _check(),
    )

    def _check() -> None:
        start, stop = given_back[-1]
        for address, nbytes in bench.driver.registered.items():
            assert stop <= address or address + nbytes <= start

    kept = [bench.deliver(2 * MB, b"a") for _ in range(12)]
    del kept[::2]
    kept += [bench.deliver(3 * MB) for _ in range(3)]
    kept.clear()
    for _ in range(200):
        bench.deliver(PAGE)
    bench.pool.keep_warm(0)
    bench.pool.close()
    assert given_back
    assert not bench.driver.registered


def _address(memory: Any) -> int:
    import ctypes

    return ctypes.addressof(memory)


def test_a_batch_that_outlives_its_pool_stays_pinned_until_it_is_gone() -> None:
    """Then its copies are waited for, it is unregistered, and unmapped, in this order."""
    bench = Bench()
    batch = bench.deliver(MB, b"k")
    where = address_of(batch)
    bench.pool.close()
    assert bench.driver.is_pinned(*where)
    arrived = bench.streams[0].copy(*where)
    driver = bench.driver
    del bench.pool, batch
    gc.collect()
    assert not driver.registered
    assert bytes(arrived) == b"k" * MB


def test_memory_stays_while_a_graph_is_captured() -> None:
    """Nothing may be waited for then, so nothing is let go before the next time that anything is."""
    bench = Bench()
    batch = bench.deliver(MB, b"k")
    where = address_of(batch)
    bench.pool.close()
    arrived = bench.streams[0].copy(*where)
    bench.known.is_capturing = True
    del bench.pool, batch
    gc.collect()
    bench.streams[0].run(1)
    assert bytes(arrived) == b"k" * MB
    assert bench.driver.registered
    bench.known.is_capturing = False
    Segment.create(PAGE).close_fd()
    assert not bench.driver.registered


def test_a_forked_process_leaves_the_driver_alone(bench: Bench) -> None:
    """It has the memory, but no driver that knows of it."""
    batch = bench.deliver(MB, b"k")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            is_whole = bytes_of(batch) == b"k" * MB
            del batch
            calls = len(bench.driver.calls)
            bench.pool.close = None  # type: ignore[method-assign, assignment]
            del bench.pool
            gc.collect()
            code = 0 if is_whole and len(bench.driver.calls) == calls else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_batch_that_is_due_waits_for_its_own_memory_only(bench: Bench) -> None:
    """It goes before the others that are being registered."""
    bench.driver.may_register.clear()
    slots = [bench.fill(MB) for _ in range(6)]
    last = slots[-1]
    assert isinstance(last, PinnedSlot)
    registering = bench.pool._registering
    wait_until(lambda: registering._in_hand is not None, PATIENCE_S, "the first is being registered")
    registering._put_first(last.pin)  # type: ignore[arg-type]
    bench.driver.may_register.set()
    assert bench.pool.finish([last])
    assert [address for _, address in bench.driver.calls].index(last.pin.address) == 1  # type: ignore[union-attr]
    for slot in slots:
        bench.pool.release(slot)


def test_a_driver_that_cannot_be_entered_is_a_refusal(monkeypatch: Any) -> None:
    bench = Bench()
    monkeypatch.setattr(bench.driver, "enter_thread", lambda: (_ for _ in ()).throw(RuntimeError("no device")))
    bench.deliver(MB)
    assert not bench.is_pinned
    assert bench.pool.refusal == "RuntimeError: no device"
    bench.pool.close()
