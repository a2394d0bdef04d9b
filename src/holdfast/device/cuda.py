"""CUDA's (and ROCm's) side of pinned slots: registering memory, and fences on streams.

Importing this touches no driver, and neither does making a registrar: a process that never pins is never asked to
initialise CUDA. Runs in: main process.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch

_PORTABLE = 1  # cudaHostRegisterPortable: pinned for every device, not only for the one that is current
_MOST_NOTED = 4
_POLL_S = 0.0002


class CudaRegistrar:
    """`cudaHostRegister`, on the device that the user's thread has chosen: another would get a context of its own."""

    def __init__(self, device_index: int | None = None) -> None:
        self._device_index = device_index
        self._is_prepared = False

    def prepare(self) -> None:
        """Called in the user's thread, before the first batch is pinned. Initialises CUDA."""
        if self._is_prepared:
            return
        # also for a device that was named: before it torch cannot say which ones are in use
        torch.cuda.init()  # type: ignore[no-untyped-call]
        if self._device_index is None:
            self._device_index = torch.cuda.current_device()
        self._is_prepared = True

    def enter_thread(self) -> None:
        torch.cuda.set_device(self._device_index)

    def register(self, address: int, nbytes: int) -> str:
        result = torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE)  # type: ignore[no-untyped-call]
        return "" if int(result) == 0 else _words_of(result)

    def unregister(self, address: int) -> None:
        torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def _words_of(result: Any) -> str:
    words = torch.cuda.cudart().cudaGetErrorString(result)  # type: ignore[no-untyped-call]
    return f"{words} (CUDA error {int(result)})"


class CudaFence:
    """An event on each of some streams."""

    __slots__ = ("_events",)

    def __init__(self, streams: Iterable[Any]) -> None:
        self._events = [stream.record_event() for stream in streams]

    def passed(self) -> bool:
        events = self._events
        while events and events[-1].query():
            events.pop()
        return not events

    def wait(self, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while not self.passed():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True


class CudaStreams:
    """The streams that were current in the user's thread at its last calls, and those that he declared.

    `declared` is the user's own list, which he may change. Without `follows_user` only `always` and `declared` count:
    where all copies are our own.
    """

    def __init__(self, declared: Sequence[Any], always: Sequence[Any] = (), *, follows_user: bool = True) -> None:
        self._declared, self._always = declared, always
        self.follows_user = follows_user
        self._noted: dict[Any, None] = {}  # in the order in which they were last current

    def note(self) -> None:
        if not self.follows_user:
            return
        noted = self._noted
        current = _current_streams()
        for stream in current:
            noted.pop(stream, None)
            noted[stream] = None
        while len(noted) > max(_MOST_NOTED, len(current)):
            del noted[next(iter(noted))]

    def fence(self) -> CudaFence:
        streams = dict.fromkeys((*self._always, *self._declared))
        if self.follows_user:
            streams.update(self._noted)
            streams.update(dict.fromkeys(_current_streams()))
        return CudaFence(streams)

    def may_wait(self) -> bool:
        return not torch.cuda.is_current_stream_capturing()


_streams: dict[tuple[int, int, int], Any] = {}  # a stream's own numbers -> the object for it; one is as good as another
_MOST_KEPT = 64


def current_stream(device_index: int) -> Any:
    """As torch.cuda.current_stream(), which takes ten times as long to find out which device is meant."""
    numbers = torch._C._cuda_getCurrentStream(device_index)
    stream = _streams.get(numbers)
    if stream is None:
        if len(_streams) >= _MOST_KEPT:
            _streams.clear()
        stream = _streams[numbers] = torch.cuda.current_stream(device_index)
    return stream


@functools.cache
def _device_count() -> int:
    """It does not change once CUDA is initialised, as it is where this is asked."""
    return torch.cuda.device_count()


def _current_streams() -> list[Any]:
    """Of every device that this process has used."""
    count = _device_count()
    if count == 1:
        return [current_stream(0)]
    has_context: Any = torch._C._cuda_hasPrimaryContext  # type: ignore[attr-defined]
    return [current_stream(index) for index in range(count) if has_context(index)]
