"""What a start method needs before the first process is started with it.

Runs in: main process.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from typing import Any

_OURS = "holdfast.workers.supervisor"  # imports torch


def name_of(context: Any) -> str:
    method: str = getattr(context, "get_start_method", multiprocessing.get_start_method)()
    return method


def prepare(method: str) -> None:
    """A fork server is told to import torch, so that each later supervisor is only a fork."""
    server: Any = forkserver._forkserver
    if method == "forkserver" and server._forkserver_pid is None and _OURS not in server._preload_modules:
        server.set_forkserver_preload([*server._preload_modules, _OURS])
