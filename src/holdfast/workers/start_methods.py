"""What a start method needs before the first process is started with it.

Runs in: main process; supervisor | worker process (`ignore_interrupts`).
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import multiprocessing.process
import signal
import sys
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
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
    ignores it. And here it must not come between a start and our taking note of it.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> Any:
    """In a process that was started so. Returns the handler that it had."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return before
