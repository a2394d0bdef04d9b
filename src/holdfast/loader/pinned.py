"""Iterators whose batches are pinned, or on a device already. What they do beyond `LoaderIterator` is all here.

    pin_memory=True    slots are registered with the driver, so that a batch is pinned as it lies there
    device="cuda"      and copied from there to the device on a side stream, ahead of its being asked for

Recovery, order and errors are those of `LoaderIterator`: a batch that is ahead was delivered by it, and an exception
that came instead of one, or of its copy, is kept for its place. A batch whose copy a signal handler of the user's cut
short is copied by the next call.

Runs in: main process.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from typing import Any

import torch

from holdfast.device import cuda
from holdfast.device.carrier import Carried, CudaCarrier
from holdfast.device.moving import move_all
from holdfast.device.pinned_slots import PinnedSlotPool
from holdfast.errors import HoldfastWarning, WorkerError
from holdfast.loader.in_process import InProcessIterator, PlainIterator
from holdfast.loader.interrupts import came_from_handler
from holdfast.loader.iterator import LoaderIterator
from holdfast.loader.schedule import Step
from holdfast.transport.slots import SlotPool
from holdfast.workers.backend import UnitDone

_SPARE_FENCED = 4  # slots that wait for the device while others are filled


def iterator_type(loader: Any) -> type[LoaderIterator]:
    """Which iterator a loader with workers needs. Asks for an accelerator only where one was asked for."""
    device: torch.device | None = loader._device
    if device is not None and device.type != "cpu":
        _check_available(device)
        return DeviceIterator if device.type == "cuda" else MovingIterator
    if loader.pin_memory and _accelerator() == "cuda":
        return PinnedIterator
    return LoaderIterator


def in_process_type(loader: Any, *, ours: bool) -> type[Any]:
    """The same without workers: batches are moved when they are asked for."""
    device: torch.device | None = loader._device
    if device is None or device.type == "cpu":
        return InProcessIterator if ours else PlainIterator
    _check_available(device)
    return MovingInProcessIterator if ours else MovingPlainIterator


def _accelerator() -> str:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found.type if found is not None else ""


def _check_available(device: torch.device) -> None:
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            f"device={str(device)!r}: torch sees no CUDA device in this process. Leave device=None to load without one"
        )
    if device.type != "cuda":
        try:
            torch.empty(0, device=device)
        except Exception as error:  # of any kind: each of these devices is refused in a way of its own
            raise RuntimeError(
                f"device={str(device)!r}: torch cannot use it here ({error}). Leave device=None to load without it"
            ) from error


class PinnedIterator(LoaderIterator):
    """Delivers batches that lie in pinned memory. Where that is refused, they are copied there, as torch does."""

    _pool: PinnedSlotPool
    _is_pinned = False  # the batch that was last handed over

    def _make_pool(self, loader: Any, warm_slots: int) -> SlotPool:
        self._registrar = cuda.CudaRegistrar(_index_of(loader.pin_memory_device))
        streams = cuda.CudaStreams(loader.streams)
        return PinnedSlotPool(warm_slots + _SPARE_FENCED, self._registrar, streams)

    def _next_data(self) -> Any:
        if os.getpid() == self._owner_pid:  # else that is what is said, and not that CUDA cannot be used there
            self._registrar.prepare()
            self._pool.streams.note()
        return super()._next_data()

    def _take_result(self, done: UnitDone) -> None:
        super()._take_result(done)
        unit = done.result.unit
        if unit in self._units and self._units[unit].result is done.result:
            self._pool.arrived(self._units[unit].areas, done.result.used)

    def _hand_over(self) -> Any:
        assert self._due is not None
        self._is_pinned = self._pool.finish(self._due[1].areas) and not self._pool.refusal
        if not self._is_pinned:
            _say_once(self._pool.refusal)
        return super()._hand_over()


class DeviceIterator(PinnedIterator):
    """Delivers batches that are on a CUDA device, or will be before anything that is asked of the current stream."""

    def _make_pool(self, loader: Any, warm_slots: int) -> SlotPool:
        self._device: torch.device = loader._device
        self._depth: int = loader.prefetch_to_device
        self._carrier: CudaCarrier | None = None
        self._ahead: deque[Carried | Exception] = deque()
        self._in_hand: list[Any] = []  # the batch behind them, if its copy is not under way yet
        self._registrar = cuda.CudaRegistrar(self._device.index)
        self._side_streams: list[Any] = []
        # of his own copies there are none, unless a batch has something that stays where it is
        streams = self._streams = cuda.CudaStreams(loader.streams, self._side_streams, follows_user=False)
        return PinnedSlotPool(warm_slots + self._depth + _SPARE_FENCED, self._registrar, streams)

    def _next_data(self) -> Any:
        if os.getpid() != self._owner_pid:
            return super()._next_data()  # which is refused
        try:
            return self._next_carried()
        except KeyboardInterrupt:
            self._rest()  # also if it came while a copy was started
            raise

    def _next_carried(self) -> Any:
        if self._carrier is None:
            self._carrier = CudaCarrier(self._device, most_unfinished=self._depth + 2)
            self._side_streams.append(self._carrier)
        while len(self._ahead) <= self._depth and self._may_go_on():
            self._go_on(self._carrier)
        first = self._ahead[0]
        if isinstance(first, Exception):
            self._ahead.popleft()
            try:
                raise first
            finally:
                del first  # its traceback holds this frame, and this frame the iterator
        try:
            batch = self._give_out(self._carrier, first)
        except BaseException as error:
            if not came_from_handler(error):  # else it stays the first
                self._ahead.popleft()
            raise
        self._ahead.popleft()
        return batch

    def _give_out(self, carrier: CudaCarrier, carried: Carried) -> Any:
        if carried.has_others:
            self._streams.note()  # on which they are copied, or will be
        return carrier.give_out(carried)

    def _go_on(self, carrier: CudaCarrier) -> None:
        """Start the copy of the next batch, or keep the exception that came instead."""
        try:
            if not self._in_hand:
                self._in_hand.append(super()._next_data())
            carried = carrier.carry(self._in_hand[0], is_pinned=self._is_pinned)
        except Exception as error:
            if came_from_handler(error):
                raise
            self._in_hand.clear()
            self._ahead.append(error.with_traceback(None) if self._ahead else error)  # as in `raise_again`
            return
        self._ahead.append(carried)
        self._in_hand.clear()
        self._streams.follows_user |= carried.has_others
        self._pool.collect()  # now: so that the fence of its slots stands right behind this copy

    def _may_go_on(self) -> bool:
        """Whether the next batch can be had without waiting, or must be waited for: nothing else is there."""
        if not self._ahead:
            return True
        if isinstance(self._ahead[-1], Exception) or self._refuge is not None or not self._is_clean:
            return False
        return self._is_next_here()

    def _is_next_here(self) -> bool:
        step = self._schedule.next_step()
        if step is Step.WAIT:
            self._is_clean = self._is_paused = False
            try:
                self._take_in_all(self._hear(0.0))
            except WorkerError as error:
                self._backend_failed(error)
            self._is_clean = True
            step = self._schedule.next_step()
        return isinstance(step, int) or self._broken is not None or self._finished

    def _pinned(self, value: Any) -> Any:
        return value  # what is not pinned yet is when it is copied

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._ahead.clear()
        self._in_hand.clear()
        super()._reset(loader, first_iter)

    def _shutdown_workers(self, *args: Any, **options: Any) -> None:
        if self._broken is None and not self._finished and not self._shutdown:
            self._ahead.clear()  # closed by the user
            self._in_hand.clear()
        super()._shutdown_workers(*args, **options)


class _Moving:
    """Before an iterator: batches are moved in the user's thread, on its current stream, when they are asked for."""

    _target: torch.device
    _in_hand: list[Any]  # the batch whose move a signal handler of the user's cut short

    def __init__(self, loader: Any, *args: Any) -> None:
        self._target, self._in_hand = loader._device, []
        super().__init__(loader, *args)  # type: ignore[call-arg]

    def _next_data(self) -> Any:
        if not self._in_hand:
            self._in_hand.append(super()._next_data())  # type: ignore[misc]
        try:
            moved = move_all(self._in_hand[0], self._target)
        except BaseException as error:
            if not came_from_handler(error):  # else it is moved by the next call
                self._in_hand.clear()
            raise
        self._in_hand.clear()
        return moved


class MovingIterator(_Moving, LoaderIterator):
    """With workers, to a device that is neither CUDA's nor the CPU."""

    def _next_data(self) -> Any:
        try:
            return super()._next_data()
        except KeyboardInterrupt:
            self._rest()  # also if it came while a batch was moved
            raise

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._in_hand.clear()
        super()._reset(loader, first_iter)


class MovingInProcessIterator(_Moving, InProcessIterator):
    """Without workers, with our arguments."""


class MovingPlainIterator(_Moving, PlainIterator):
    """Without workers, as torch loads."""


def _index_of(pin_memory_device: str) -> int | None:
    return torch.device(pin_memory_device).index if pin_memory_device else None


_said: list[str] = []


def _say_once(refusal: str) -> None:
    if not _said:
        _said.append(refusal)
        message = (
            f"the driver refused to pin the memory that batches arrive in: {refusal}. They are copied to pinned memory "
            f"instead, as torch's loader does, which is slower"
        )
        warnings.warn(message, HoldfastWarning, stacklevel=2)
