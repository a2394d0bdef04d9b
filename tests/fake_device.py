"""A device that is not there: a driver that remembers what is registered, and streams that copy when they are told to.

A copy is asked for by address, as hardware sees it: it keeps nothing alive, and reads whatever is there when its turn
comes. So a slot that is used again too early is seen in what arrives. The driver fails at once if memory is registered
twice, unregistered while a copy that reads it is still to be made, or not registered at all.

Runs in: the test process.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
from collections import deque
from typing import Any


class FakeDriver:
    """What `CudaRegistrar` is to a real one. `most_bytes`: more is refused."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.most_bytes = most_bytes
        self.registered: dict[int, int] = {}
        self.calls: list[tuple[str, int]] = []
        self.streams: list[FakeStream] = []
        self.may_register = threading.Event()
        self.may_register.set()
        self.pid = os.getpid()
        self._lock = threading.Lock()

    def prepare(self) -> None: ...

    def enter_thread(self) -> None:
        assert threading.current_thread() is not threading.main_thread()

    def register(self, address: int, nbytes: int) -> str:
        assert self.may_register.wait(60)
        with self._lock:
            self.calls.append(("register", address))
            assert os.getpid() == self.pid
            for start, length in self.registered.items():
                assert address + nbytes <= start or start + length <= address, "registered twice"
            if self.most_bytes is not None and sum(self.registered.values()) + nbytes > self.most_bytes:
                return "out of memory"
            self.registered[address] = nbytes
            return ""

    def unregister(self, address: int) -> None:
        assert os.getpid() == self.pid
        with self._lock:
            self.calls.append(("unregister", address))
            nbytes = self.registered.pop(address)
        for stream in self.streams:
            assert not stream.reads(address, nbytes), "unregistered while it is being read"

    def is_pinned(self, address: int, nbytes: int) -> bool:
        with self._lock:
            return any(a <= address and address + nbytes <= a + n for a, n in self.registered.items())


class FakeStream:
    """Copies in order, when it is told to."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.asked = self.done = 0
        self.hangs = self.has_failed = False
        self._copies: deque[tuple[int, int, bytearray]] = deque()
        driver.streams.append(self)

    def copy(self, address: int, nbytes: int) -> bytearray:
        """What will be on the device."""
        assert self.driver.is_pinned(address, nbytes), "a copy from memory that is not pinned would wait"
        target = bytearray(nbytes)
        self._copies.append((address, nbytes, target))
        self.asked += 1
        return target

    def run(self, copies: int) -> None:
        for _ in range(min(copies, len(self._copies))):
            address, nbytes, target = self._copies[0]
            target[:] = ctypes.string_at(address, nbytes)
            self._copies.popleft()
            self.done += 1

    def reads(self, address: int, nbytes: int) -> bool:
        return any(address < a + n and a < address + nbytes for a, n, _ in self._copies)


class FakeFence:
    """Passed when the streams have come as far as they had been asked to when it was set."""

    def __init__(self, streams: list[FakeStream]) -> None:
        self._marks = [(stream, stream.asked) for stream in streams]
        self.waits = 0
        self._check()

    def _check(self) -> None:
        """As CUDA does, of everything that it is asked from then on."""
        if any(stream.has_failed for stream, _ in self._marks):
            raise RuntimeError("CUDA error: device-side assert triggered")

    def passed(self) -> bool:
        self._check()
        return all(stream.done >= mark for stream, mark in self._marks)

    def wait(self, timeout_s: float) -> bool:
        """The device goes on working while somebody waits for it, unless it hangs."""
        end = time.monotonic() + timeout_s
        while not self.passed():
            if any(stream.hangs for stream, _ in self._marks) or time.monotonic() > end:
                return False
            for stream, _ in self._marks:
                stream.run(1)
        return True


class FakeStreams:
    """What `CudaStreams` is to real ones: of the user's, all that it is given count, as long as he is followed."""

    def __init__(
        self, streams: list[FakeStream], always: list[FakeStream] | None = None, *, follows_user: bool = True
    ) -> None:
        self.streams, self.always = streams, [] if always is None else always  # which may be filled later
        self.follows_user = follows_user
        self.is_capturing = False
        self.noted = 0

    def note(self) -> None:
        self.noted += 1

    def fence(self) -> FakeFence:
        return FakeFence([*self.always, *(self.streams if self.follows_user else ())])

    def may_wait(self) -> bool:
        return not self.is_capturing


def address_of(view: Any) -> tuple[int, int]:
    """Where a tensor or an array lies, and how long it is."""
    if hasattr(view, "data_ptr"):
        return view.data_ptr(), view.nbytes
    return view.ctypes.data, view.nbytes


def run_a_little(streams: list[FakeStream], dice: random.Random) -> None:
    """Each stream gets on as far as it happens to."""
    for stream in streams:
        stream.run(dice.choice((0, 0, 1, 2, 5)))
