"""Fences on CUDA's streams, with streams that are not CUDA's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from holdfast.device import carrier, cuda


class Event:
    def __init__(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done


class Stream:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def record_event(self) -> Event:
        self.events.append(Event())
        return self.events[-1]


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The streams that are current, for the test to change."""
    streams: list[Any] = []
    monkeypatch.setattr(cuda, "_current_streams", lambda: list(streams))
    return streams


def finish(streams: list[Any]) -> None:
    for stream in streams:
        for event in stream.events:
            event.is_done = True


def test_a_fence_has_passed_when_every_stream_has(current: list[Any]) -> None:
    """The current one, those that were current at earlier calls, and those that were declared, also later."""
    before, now, declared, later = streams = [Stream() for _ in range(4)]
    known = cuda.CudaStreams(listed := [declared])
    current.append(before)
    known.note()
    current[:] = [now]
    listed.append(later)
    fence = known.fence()
    for k, stream in enumerate(streams):
        assert not fence.passed(), k
        finish([stream])
    assert fence.passed()


def test_a_stream_is_asked_once(current: list[Any]) -> None:
    stream = Stream()
    current.append(stream)
    known = cuda.CudaStreams([stream], [stream])
    known.note()
    known.fence()
    assert len(stream.events) == 1


def test_where_the_copies_are_ours_the_users_streams_do_not_count(current: list[Any]) -> None:
    side, users = Stream(), Stream()
    current.append(users)
    known = cuda.CudaStreams((), [side], follows_user=False)
    known.note()
    known.fence()
    assert (len(side.events), len(users.events)) == (1, 0)
    known.follows_user = True
    known.fence()
    assert (len(side.events), len(users.events)) == (2, 1)


def test_streams_that_were_current_long_ago_are_forgotten(current: list[Any]) -> None:
    """Who makes a new one for every step does not make fences longer and longer."""
    known = cuda.CudaStreams([])
    for _ in range(100):
        current[:] = [Stream()]
        known.note()
    assert len(known.fence()._events) <= 5


def test_a_wait_has_an_end() -> None:
    stream = Stream()
    fence = cuda.CudaFence([stream])
    assert not fence.wait(0.01)
    finish([stream])
    assert fence.wait(0.0)


def test_a_stream_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own numbers; who makes a new one for every step does not make us keep them all."""
    asked: list[int] = []
    numbers = (7, 0, 1)

    def find(device_index: int) -> Stream:
        asked.append(device_index)
        return Stream()

    monkeypatch.setattr(cuda, "_streams", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentStream", lambda index: numbers, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", find)
    first = cuda.current_stream(0)
    assert cuda.current_stream(0) is first
    assert asked == [0]
    for k in range(1000):
        numbers = (k, 1, 1)
        assert cuda.current_stream(1) is not first
    assert len(cuda._streams) < 100
    numbers = (7, 0, 1)
    assert isinstance(cuda.current_stream(0), Stream)


@pytest.mark.parametrize("index", [None, 1])
def test_cuda_is_initialised_before_anything_is_asked_of_it(monkeypatch: pytest.MonkeyPatch, index: int | None) -> None:
    """Also for a device that was named: which devices have a context cannot be asked before."""
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "init", lambda: calls.append("init"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: calls.append("current") or 0)
    registrar = cuda.CudaRegistrar(index)
    registrar.prepare()
    registrar.prepare()
    assert calls == (["init", "current"] if index is None else ["init"])


class Streams:
    """The one that is current, where torch would ask CUDA for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.users = self.current = Stream()
        self.is_interrupted = False
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream())
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "set_stream", self.set_stream)
        monkeypatch.setattr(carrier, "current_stream", lambda index: self.current)

    def set_stream(self, stream: Stream) -> None:
        self.current = stream
        if self.is_interrupted and stream is not self.users:
            raise KeyboardInterrupt


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(monkeypatch)


def test_an_interrupt_leaves_the_users_stream_current(streams: Streams) -> None:
    """Whenever it comes: also when the side stream has just become the current one."""
    one = carrier.CudaCarrier(torch.device("cuda"), most_unfinished=2)
    one.carry([1], is_pinned=True)
    assert streams.current is streams.users
    streams.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        one.carry([1], is_pinned=True)
    assert streams.current is streams.users


def test_what_is_copied_ahead_in_inference_mode_is_good_for_training(streams: Streams) -> None:
    """Who asks for a batch in that mode has others copied that he asks for when it is over."""
    one = carrier.CudaCarrier(torch.device("meta", 0), most_unfinished=2)
    with torch.inference_mode():
        carried = one.carry([torch.zeros(3), torch.ones(3, requires_grad=True)], is_pinned=True)
    plain, leaf = carried.batch
    assert (plain.is_meta, plain.is_inference(), plain.requires_grad) == (True, False, False)
    assert (leaf.is_meta, leaf.is_inference(), leaf.requires_grad) == (True, False, True)


def test_streams_of_every_device_that_is_in_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of no other: to ask a device for its stream would begin to use it."""
    monkeypatch.setattr(cuda, "_device_count", lambda: 3)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: index != 1, raising=False)
    monkeypatch.setattr(cuda, "current_stream", lambda index: f"stream of {index}")
    assert cuda._current_streams() == ["stream of 0", "stream of 2"]


def test_a_batch_for_another_device_than_the_current_one_leaves_that_current(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own context sees to that, whatever happens in it."""
    entered: list[Any] = []

    @contextlib.contextmanager
    def stream(side: Any) -> Iterator[None]:
        entered.append(side)
        yield

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    one = carrier.CudaCarrier(torch.device("meta", 0), most_unfinished=2)
    assert one.carry([torch.zeros(3)], is_pinned=True).batch[0].is_meta
    assert entered == [one.stream]
    assert streams.current is streams.users
