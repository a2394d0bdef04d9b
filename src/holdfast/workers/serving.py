"""The process around a worker: how it starts, and how it ends: with its supervisor, whatever it is doing.

    main (the target of a forked process) ──► serve ──► Worker.start, run, end

Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

from holdfast.workers import limits
from holdfast.workers.board import Board
from holdfast.workers.job import CarriedJob
from holdfast.workers.worker import OpenableJob, Worker, do_nothing

if TYPE_CHECKING:
    from holdfast.workers.traces import TraceEnds  # where there are such

_PR_SET_PDEATHSIG = 1
_LAST = -1000  # after all that others have to do at the end of the process


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies; the parent must be single-threaded."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)  # it died before the call


def main(
    worker_id: int,
    job: CarriedJob,
    board: Board,
    sock: socket.socket,
    supervisor_pid: int,
    *,
    traces: TraceEnds,
    look: Callable[[], None] | None = None,
    on_interrupt: Any = signal.default_int_handler,
    collects: bool = False,
) -> None:
    """The target of a worker process. SIGINT finds what a worker forked by torch would have.

    `look`: what `traces.install` gave, where that was called already. `collects`: as of `serve`.
    """
    from holdfast.workers.channel import Channel  # where there are such sockets

    die_with_parent(supervisor_pid)
    look = look or traces.install(is_forked=True)
    worker = Worker(worker_id, board, Channel(sock, blocking=True), look=look)
    serve(worker, job, on_interrupt, when_ready=traces.install_handlers, collects=collects)


def serve(
    worker: Worker,
    job: OpenableJob,
    on_interrupt: Any,
    *,
    when_ready: Callable[[], None] = do_nothing,
    collects: bool = False,
) -> None:
    """A worker's life. `collects`: the garbage collector, which we had turned off before, is to be on."""
    gc.freeze()  # what it was born with: each full collection would look at all of it, and copy it if it is shared
    if collects:
        gc.enable()
    limits.be_first_to_go()
    try:
        signal.signal(signal.SIGINT, on_interrupt or signal.SIG_DFL)
        worker.start(job)
        when_ready()
        worker.run()
        worker.end()
    except KeyboardInterrupt:  # the main process raises its own
        Finalize(None, _die_of_interrupt, exitpriority=_LAST)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _die_of_interrupt() -> None:
    """An exit status would say that the user's code had ended the process."""
    if os.name != "posix":
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(Exception):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
