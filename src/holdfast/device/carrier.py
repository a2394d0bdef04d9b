"""Copies batches to a CUDA device on a side stream, and gives them to the user's stream when they are there.

    carry: side stream ── copy ── event            give out: user's stream waits for the event (the host does not),
                                                    and the memory is marked as used by that stream

Invariants:
- No more than `most_unfinished` copies are under way: who asks for more waits for the oldest.
- Memory on the device belongs to the side stream; `record_stream` keeps it from being used again while the user's
  stream may still read it.

Runs in: main process (the user's thread).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from holdfast.device.cuda import current_stream
from holdfast.device.moving import Mover, move_others


class Carried:
    """A batch on its way."""

    __slots__ = ("batch", "event", "has_others", "tensors")

    def __init__(self, batch: Any, tensors: list[Tensor], event: Any, *, has_others: bool) -> None:
        self.batch, self.tensors, self.event, self.has_others = batch, tensors, event, has_others


class CudaCarrier:
    """One device, one side stream."""

    def __init__(self, device: torch.device, most_unfinished: int) -> None:
        index: int | None = device.index  # (typed as if there always were one)
        self.device = torch.device(device.type, torch.cuda.current_device() if index is None else index)
        self.stream: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._most_unfinished = most_unfinished
        self._unfinished: deque[Any] = deque()
        self._last: Any = None  # the event behind everything that was asked of the side stream

    def record_event(self) -> Any:
        """For a fence, as a stream has it. Nobody else uses the side stream: the event of the last copy serves."""
        return self._last if self._last is not None else self.stream.record_event()

    def carry(self, batch: Any, *, is_pinned: bool) -> Carried:
        """Start the copy. The batch may be let go at once: its slots are fenced by the side stream."""
        unfinished = self._unfinished
        while unfinished and unfinished[0].query():
            unfinished.popleft()
        while len(unfinished) >= self._most_unfinished:
            unfinished.popleft().synchronize()
        mover = Mover(self.device, is_pinned=is_pinned)
        self._last = None  # until all of it has been asked for
        if torch.is_inference_mode_enabled():  # which may be over when the batch is given out, for training
            with torch.inference_mode(mode=False):
                batch = self._on_the_side(mover.move, batch)
        else:
            batch = self._on_the_side(mover.move, batch)
        event = self._last = self.stream.record_event()
        unfinished.append(event)
        return Carried(batch, mover.moved, event, has_others=mover.has_others)

    def _on_the_side(self, move: Callable[[Any], Any], batch: Any) -> Any:
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.stream(self.stream):
                return move(batch)
        before = current_stream(self.device.index)
        try:  # around this, too: a signal handler may raise when it is done
            torch.cuda.set_stream(self.stream)
            return move(batch)
        finally:
            torch.cuda.set_stream(before)

    def give_out(self, carried: Carried) -> Any:
        """The batch, for whatever the caller's thread does on its current stream from here on."""
        current = current_stream(self.device.index)
        current.wait_event(carried.event)
        for tensor in carried.tensors:
            tensor.record_stream(current)
        return move_others(carried.batch, self.device) if carried.has_others else carried.batch
