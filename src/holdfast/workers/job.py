"""What the workers are there to do: the user's objects, and how they reach a worker under each start method.

    fork                 the supervisor is forked from the main process, workers from it: everything is inherited
    spawn, forkserver    one pickle, made inside the supervisor's own `Process.start` so that queues, locks and shared
                         tensors can be in it; each worker loads its own copy, its descriptors inherited

Runs in: main process (made), supervisor (carried, never opened), worker process (opened).
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver, reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from holdfast.counted import POOL
from holdfast.transport import pickling
from holdfast.workers.attempts import Care
from holdfast.workers.messages import Epoch
from holdfast.workers.passing import PassedFd


@dataclass(frozen=True)
class Calling:
    """Of a job whose units are calls, and not batches."""

    who: str  # what a worker is to the user: "pool worker", "rank"
    front: str = POOL  # how the user makes what runs the calls
    threads: int | None = 1  # of torch in each; None: as many as it takes by itself
    is_seeded: bool = True  # each worker with a seed of its own
    imports: tuple[str, ...] = ()  # modules that the calls are known to need
    is_rank: bool = False  # a part of the program itself: one call, whose end is that of the process, in its own time
    is_daemonic: bool = False  # as multiprocessing means it: it can have no children


@dataclass(frozen=True)
class Job:
    """Everything of the user's that a worker needs. Fields are named like the arguments, for error messages."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None
    is_iterable: bool
    auto_collation: bool
    drop_last: bool
    base_seed: int
    num_workers: int
    epoch: Epoch
    care: Care
    sample_timeout_s: float | None
    max_restarts: int
    has_been_ready: bool  # a worker of this loader has been, before: what they start with is good
    recycle_after: int | None = None
    memory_budget: int | None = None  # of all workers and slots, in bytes
    most_growth: int | None = None  # of one worker, in bytes, before it is replaced; None: growth is not watched
    calling: Calling | None = None  # its workers run calls; what is said above of datasets is of no use to them

    @property
    def who(self) -> str:
        """What a worker is called in what it says on stderr."""
        return self.calling.who if self.calling is not None and self.calling.is_rank else "worker"

    @property
    def front(self) -> str:
        """Whose workers they are; "" of a loader."""
        return self.calling.front if self.calling is not None else ""

    @property
    def has_ranks(self) -> bool:
        return self.calling is not None and self.calling.is_rank

    @property
    def limits_threads(self) -> bool:
        """Whether native libraries in a worker start with one thread."""
        return self.calling is None or self.calling.threads is not None

    @property
    def imports(self) -> frozenset[str]:
        """Modules that its workers will need beside those that its pickle names."""
        return frozenset(self.calling.imports) if self.calling is not None else frozenset()


def job_of_calls(
    calling: Calling,
    num_workers: int,
    *,
    init: Callable[[int], None] | None = None,
    timeout_s: float | None = None,
    memory_limit: int | None = None,
    max_restarts: int = 3,
    recycle_after: int | None = None,
) -> Job:
    """Workers that run calls. `init` is called first in each, with its number."""
    return Job(
        dataset=None,
        collate_fn=_no_batches,
        worker_init_fn=init,
        is_iterable=False,
        auto_collation=False,
        drop_last=False,
        base_seed=int.from_bytes(os.urandom(7), "little"),
        num_workers=num_workers,
        epoch=Epoch(None, None),
        care=Care(memory_limit=memory_limit),
        sample_timeout_s=timeout_s,
        max_restarts=max_restarts,
        has_been_ready=False,
        recycle_after=recycle_after,
        calling=calling,
    )


def _no_batches(samples: Any) -> Any:
    raise NotImplementedError


def import_quietly(modules: frozenset[str], announce: Callable[[int], None] = lambda number: None) -> None:
    """Import what a job's pickle will need, ahead of time. An error is reported by who opens the job.

    `announce` is told which of them, in order and counted from 1, is being imported; 0: none any more.
    """
    for number, name in enumerate(sorted(modules), 1):
        announce(number)
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)
    announce(0)


class CarriedJob:
    """A job on its way: the object itself where it is inherited, its pickle where it was sent."""

    def __init__(
        self,
        job: Job | None,
        data: bytes | PassedFd = b"",
        modules: frozenset[str] = frozenset(),
        fds: tuple[int, ...] = (),
        first_fd: int = 0,
    ) -> None:
        self._job = job
        self._data = data  # the pickle, or the file it lies in
        self.modules = modules  # what the pickle will import
        self._fds = fds  # descriptors that the pickle refers to: by number, or by place from `first_fd` on
        self._first_fd = first_fd

    @property
    def was_sent(self) -> bool:
        """Whether this process was started afresh, and not forked from the one that made the job."""
        return self._job is None

    def open(self) -> Job:
        """The worker's own copy. May raise whatever the user's classes raise while they are loaded."""
        if self._job is not None:
            return self._job
        job: Job = pickle.loads(_read(self._data.fd) if isinstance(self._data, PassedFd) else self._data)
        return job

    def in_a_file(self) -> CarriedJob:
        """The same, small to send on: its pickle in a memfd. Through a pipe it would wait for its reader."""
        fd = os.memfd_create("holdfast-job", os.MFD_CLOEXEC)
        assert isinstance(self._data, bytes)
        with open(fd, "wb", closefd=False) as file:
            file.write(self._data)
        return CarriedJob(None, PassedFd(fd), self.modules, self._fds, self._first_fd)

    def __reduce__(self) -> tuple[Any, ...]:
        # Called inside Process.start, and only there: outside it, queues and locks refuse to be pickled.
        popen: Any = get_spawning_popen()
        if self._job is None:
            inherited = forkserver.get_inherited_fds()
            fds = self._fds if inherited is None else inherited[self._first_fd : self._first_fd + len(self._fds)]
            return _carry_on, (self._data, self.modules, [reduction.DupFd(fd) for fd in fds], self._first_fd)
        first = len(popen._fds)
        data, modules = pickling.dumps(self._job, "")
        self.modules = modules | self._job.imports
        return CarriedJob, (None, data, self.modules, tuple(popen._fds[first:]), first)


def _carry_on(data: bytes | PassedFd, modules: frozenset[str], duplicates: list[Any], first: int) -> CarriedJob:
    """A job that was sent on by a process that had been sent it. Its descriptors have kept their numbers."""
    fds = [duplicate.detach() for duplicate in duplicates]
    server: Any = forkserver._forkserver
    server._inherited_fds = [-1] * first + fds  # a pickle made for a fork server refers to them by their place here
    return CarriedJob(None, data, modules, tuple(fds), first)


def _read(fd: int) -> mmap.mmap:
    """The whole file. Mapped, because its position is shared with every process that has the descriptor."""
    return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
