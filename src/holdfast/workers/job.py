"""What the workers are there to do: the user's objects, and how they reach a worker under each start method.

    fork                 the supervisor is forked from the main process, workers from it: everything is inherited
    spawn, forkserver    one pickle, made inside the supervisor's own `Process.start` so that queues, locks and shared
                         tensors can be in it; each worker loads its own copy, its descriptors inherited

Runs in: main process (made), supervisor (carried, never opened), worker process (opened).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

from holdfast.transport import pickling


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
    shared_seed: int | None
    num_workers: int


class CarriedJob:
    """A job on its way: the object itself where it is inherited, its pickle where it was sent."""

    def __init__(self, job: Job | None, data: bytes = b"", modules: frozenset[str] = frozenset()) -> None:
        self._job = job
        self._data = data
        self.modules = modules  # what the pickle will import

    def open(self) -> Job:
        """The worker's own copy. May raise whatever the user's classes raise while they are loaded."""
        job: Job = self._job if self._job is not None else pickle.loads(self._data)
        return job

    def __reduce__(self) -> tuple[Any, ...]:
        # Called inside Process.start, and only there: outside it, queues and locks refuse to be pickled.
        return CarriedJob, (None, *pickling.dumps(self._job, ""))


class PassedFd:
    """A descriptor that a process hands to one it starts, by whatever way the start method has."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_fd, (reduction.DupFd(self.fd),)


def _receive_fd(duplicate: Any) -> PassedFd:
    return PassedFd(duplicate.detach())
