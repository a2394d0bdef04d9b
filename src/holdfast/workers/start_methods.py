"""What a start method needs before the first process is started with it.

Runs in: main process; supervisor | worker process (`ignore_interrupts`).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from types import FrameType
from typing import Any

_OURS = "holdfast.workers.supervisor"  # imports torch
_OUR_NUMBERS = 1 << 20


def name_of(context: Any) -> str:
    method: str = getattr(context, "get_start_method", multiprocessing.get_start_method)()
    return method


def prepare(method: str) -> None:
    """A fork server is told to import torch, so that each later supervisor is only a fork."""
    server: Any = forkserver._forkserver
    if method == "forkserver" and server._forkserver_pid is None and _OURS not in server._preload_modules:
        server.set_forkserver_preload([*server._preload_modules, _OURS])
    # They hand down, to all they start from then on, the mask of signals that they are started with: see below.
    if method == "forkserver":
        forkserver.ensure_running()
    if method != "fork" and sys.platform != "win32":
        resource_tracker.ensure_running()


class _CollectionsOff:
    """Turns the garbage collector off where it is unpickled."""

    def __reduce__(self) -> Any:
        return gc.disable, ()


class ImportersName(str):
    """The name of a process that imports with the garbage collector off until it turns it on: importing torch takes an
    eighth less, and there is nothing to collect.

    multiprocessing sends the name of a new interpreter before it imports anything, the main script neither, and before
    it has a path to find modules of ours. So what is unpickled there is made of builtins: `{}.get(None, name)`.
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return dict.get, ({}, _CollectionsOff(), str(self))


def is_starting() -> bool:
    """Whether this process is one that multiprocessing is just starting, as while it imports the main script: what a
    script without a main guard makes then is not the user's run, but its echo.
    """
    return getattr(multiprocessing.process.current_process(), "_inheriting", False)


@contextlib.contextmanager
def unnumbered() -> Iterator[None]:
    """Process objects made here take none of multiprocessing's numbers, which workers are named by: as with torch,
    those of the next epoch follow those of this one.
    """
    module: Any = multiprocessing.process
    before, module._process_counter = module._process_counter, itertools.count(_OUR_NUMBERS)
    try:
        yield
    finally:
        module._process_counter = before


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A Ctrl-C reaches every process of the terminal, and a notebook's interrupt every process of its kernel. A new one
    must not die of it, with a traceback, while it imports: it starts with SIGINT blocked, and unblocks it when it
    ignores it. And here it must not come between a start and our taking note of it: it comes at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if sys.platform != "win32" else None
    try:
        with _told_later():
            yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _told_later() -> Iterator[None]:
    """What this thread blocks, the kernel gives to another, of which a notebook's kernel has some; and Python runs the
    handler here all the same. So another one stands in for it, which only takes note.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no handler is run in this thread, or none of Python's
        return
    stand_in = _StandIn(handler)
    try:
        signal.signal(signal.SIGINT, stand_in)
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if stand_in.was_called:
            signal.raise_signal(signal.SIGINT)


class _StandIn:
    """Takes note of an interrupt. In a fork of this process it is as the handler that it stands for."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler
        self.was_called = False
        self._pid = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            self.handler(number, frame)
        self.was_called = True


def ignore_interrupts() -> Any:
    """In a process that was started so. Returns the handler that it had."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return before.handler if isinstance(before, _StandIn) else before
