"""What a start method needs before the first process is started with it.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.process
from collections.abc import Iterator
from multiprocessing import forkserver
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
