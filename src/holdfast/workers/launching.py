"""How a supervisor makes a worker process: a fork of itself, or a new interpreter where it must not be forked.

    Forking     milliseconds; the worker inherits the job and every module
    Spawning    an interpreter's start and its imports, seconds; so one spare is kept that has them behind it and waits,
                on the socket that will be its own, to be told who it is

Runs in: supervisor process (the launchers), worker process (the targets).
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import popen_fork
from typing import Any, NamedTuple, Protocol

import torch

from holdfast.memory import readings
from holdfast.workers import channel, seeding, serving, worker
from holdfast.workers.board import Board
from holdfast.workers.channel import Channel
from holdfast.workers.job import CarriedJob, import_quietly
from holdfast.workers.passing import PassedFd
from holdfast.workers.traces import TraceEnds, Traces
from holdfast.workers.untraced import make_traces


@dataclass(frozen=True)
class Identity:
    """Who a worker is to be: what torch's worker in its place would find in its own process object."""

    worker_id: int
    name: str
    number: tuple[int, ...]


class Newborn(NamedTuple):
    """A process that was started, the main process's end of its socket, and what it will leave behind."""

    process: Any
    socket: socket.socket
    traces: Traces


class Launcher(Protocol):
    """Starts workers. What is to be kept out of them are our own descriptors."""

    def launch(self, who: Identity, keep_out: Iterable[int]) -> Newborn: ...

    def born_bytes(self) -> int:
        """What the next worker will have of memory that is not its own, because it is a fork of this process."""

    def warm_up(self) -> None:
        """Called now and then when all workers are well: prepare for the next launch."""

    def close(self) -> None: ...


# -- forks -------------------------------------------------------------------------------------------------------------


class _ForkedProcess(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    """A proper multiprocessing process, named and numbered as if the main process had started it."""

    def __init__(self, who: Identity, start_method: str | None, args: tuple[Any, ...]) -> None:
        super().__init__(target=_run_forked, args=args, name=who.name, daemon=True)
        self._identity = who.number
        self._start_method = start_method


class Forking:
    """Workers are forks of this process. `start_method` is what `multiprocessing` is to say in them."""

    def __init__(
        self, job: CarriedJob, board: Board, start_method: str | None, on_interrupt: Any, *, collects: bool = True
    ) -> None:
        self._job, self._board = job, board
        self._start_method = start_method
        self._on_interrupt = on_interrupt
        self._collects = collects
        read_sources()

    def launch(self, who: Identity, keep_out: Iterable[int]) -> Newborn:
        ours, theirs = channel.pair()
        traces = make_traces()
        # Python warns of forks with threads. Ours are torch's, idle, and the warning would be about us.
        silence = warnings.catch_warnings(action="ignore", category=DeprecationWarning)
        run = functools.partial(
            serving.main,
            *(who.worker_id, self._job, self._board, theirs, os.getpid()),
            traces=traces.ends,
            on_interrupt=self._on_interrupt,
            collects=self._collects,
        )
        keep_out = [*keep_out, ours.fileno(), *traces.kept_here]
        process = _ForkedProcess(who, self._start_method, (silence, keep_out, run))
        with silence:
            process.start()
        theirs.close()
        traces.begin(process.pid)
        return Newborn(process, ours, traces)

    def born_bytes(self) -> int:
        return readings.anonymous_bytes("self") or 0

    def warm_up(self) -> None:
        pass

    def close(self) -> None:
        pass


@functools.cache
def read_sources() -> None:
    """Read, once, what is read by each worker that is forked without it, which takes longer than the fork.

    torch keeps, for CUDA's sake, the stack of a call that seeds, with its source lines.
    """
    traceback.format_stack()
    own = (sys.modules[__name__], seeding, serving, worker, contextlib)
    for module in (*own, multiprocessing.process, popen_fork, torch.random, torch.cuda, torch.cuda.random):
        if module.__file__ is not None:
            linecache.getlines(module.__file__)


def _run_forked(silence: warnings.catch_warnings[Any], others: list[int], run: Callable[[], None]) -> None:
    silence.__exit__(None, None, None)
    for fd in others:
        os.close(fd)
    run()


# -- new interpreters --------------------------------------------------------------------------------------------------


class _SpawnedProcess(multiprocessing.get_context("spawn").Process):  # type: ignore[misc]
    """A new interpreter that waits to be told who it is."""

    def __init__(self, start_method: str | None, args: tuple[Any, ...]) -> None:
        super().__init__(target=_run_spawned, args=args, daemon=True)
        self._start_method = start_method


class Spawning:
    """Workers are new interpreters. The job travels in a memfd, so that no start waits for the new one to read it."""

    def __init__(self, job: CarriedJob, board: Board, start_method: str | None) -> None:
        self._job, self._board = job.in_a_file(), board
        self._start_method = start_method
        self._spare: Newborn | None = None
        self._is_refused = False  # the kernel refused a spare: no other is tried

    def launch(self, who: Identity, keep_out: Iterable[int]) -> Newborn:
        born = self._take_spare() or self._start()
        with contextlib.suppress(OSError):  # it is dead already, which will be noticed as any worker's death is
            Channel(born.socket, blocking=True).send(pickle.dumps(who))
        return born

    def born_bytes(self) -> int:
        return 0

    def warm_up(self) -> None:
        if self._spare is not None or self._is_refused:
            return
        try:
            self._spare = self._start()
        except OSError:  # no room for one more process: the next death will show whether there is
            self._is_refused = True

    def close(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.process.kill()
            spare.socket.close()
            spare.traces.discard()

    def _take_spare(self) -> Newborn | None:
        if self._spare is not None and channel.is_readable(self._spare.process.sentinel):
            self.close()  # it has died
        spare, self._spare = self._spare, None
        return spare

    def _start(self) -> Newborn:
        ours, theirs = channel.pair()
        traces = make_traces()
        args = (self._job, self._board, PassedFd(theirs.fileno()), traces.ends, os.getpid())
        process = _SpawnedProcess(self._start_method, args)
        process.start()
        theirs.close()
        traces.begin(process.pid)
        return Newborn(process, ours, traces)


def _run_spawned(job: CarriedJob, board: Board, sock: PassedFd, traces: TraceEnds, supervisor_pid: int) -> None:
    serving.die_with_parent(supervisor_pid)
    look = traces.install(is_forked=False)
    # A spare has no user's loop to interrupt; what the terminal sends to all is meant for the main process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_quietly(job.modules)
    own = socket.socket(fileno=sock.fd)
    told = Channel(own, blocking=True).receive()
    if told is None:
        return
    who: Identity = pickle.loads(told[0])
    process: Any = multiprocessing.process.current_process()
    process._name, process._identity = who.name, who.number
    serving.main(who.worker_id, job, board, own, supervisor_pid, traces=traces, look=look)
