"""The border between the loader, or a pool, and whatever runs its workers.

The loader decides what is to be done; a backend moves messages and reports what it saw. A backend never decides about
data: it says that a worker is gone and what it had been doing, and starts the next life.

Runs in: main process.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from holdfast.diagnosis import inquiry
from holdfast.diagnosis.evidence import Diagnosis, Evidence
from holdfast.transport.segments import Handle
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers.bell import Bell
from holdfast.workers.board import Board, Doing, WorkerMemory
from holdfast.workers.job import Job
from holdfast.workers.lives import Lives
from holdfast.workers.messages import Epoch, Reason, Result, Unit


class UnitDone(NamedTuple):
    """A worker sent the header of a finished unit. `handles` are of segments to be adopted."""

    worker_id: int
    result: Result
    handles: Sequence[Handle]


@dataclass(frozen=True)
class WorkerLost:
    """A worker process is gone, with everything it had not finished. `replaced` if another life has its place."""

    worker_id: int
    pid: int
    exitcode: int
    doing: Doing
    replaced: bool
    reason: Reason
    evidence: Evidence

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What killed it. Found out when it is first asked for, which reads files."""
        return inquiry.diagnose(self.evidence)


@dataclass(frozen=True)
class SupervisorLost:
    """All workers are gone, and the supervisor where there is one; new ones have been started.

    Every unfinished unit is lost. The evidence says whether the supervisor was lost, or the workers had to start over.
    """

    evidence: Evidence
    doing: tuple[Doing, ...] = ()  # of each worker, when it was ended

    @property
    def pid(self) -> int | None:
        return self.evidence.pid

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return inquiry.diagnose(self.evidence)


Event = UnitDone | WorkerLost | SupervisorLost


def is_lost_again(worker_id: int, backlog: Iterable[Event]) -> bool:
    """Whether another loss of this worker is yet to be heard of. (The first event is the one being dealt with.)

    What is said to the worker now would reach a life that will be told all of it once more: it would load its units
    twice, the first time into slots that are no longer its own.
    """
    return any(
        isinstance(event, SupervisorLost) or (isinstance(event, WorkerLost) and event.worker_id == worker_id)
        for event in itertools.islice(backlog, 1, None)
    )


class WorkerHandle(Protocol):
    """What other code reads of a worker: the part of `multiprocessing.Process` that torch's users rely on."""

    name: str
    daemon: bool

    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None: ...

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


class WorkerBackend(Protocol):
    """Runs the workers of one iterator, or of one pool. All of it is called by one thread."""

    @property
    def workers(self) -> Sequence[WorkerHandle]: ...

    @property
    def start_method(self) -> str:
        """How its workers come to be: "fork", "spawn", "forkserver" or "portable"."""

    @property
    def new_interpreters(self) -> str | None:
        """Why workers that could have been forks of a warm process are new interpreters; None if they are not."""

    @property
    def lives(self) -> Lives:
        """Which worker processes began and ended."""

    @property
    def board(self) -> Board:
        """The status board of its workers; not after `stop`."""

    def start(self) -> None:
        """Start all workers."""

    def submit(self, worker_id: int, unit: Unit, slots: tuple[Slot, ...]) -> None:
        """Send a unit to a worker. Never blocks; a unit sent to a worker that is gone is reported lost with it.

        `slots` are those that the unit refers to.
        """

    def restore(self, worker_id: int, progress: bytes, slot: Slot | None) -> None:
        """Have the new life of a worker take up its progress, before the units that are submitted after this.

        With a slot, that is where the progress lies, and `progress` is empty.
        """

    def wait(self, timeout_s: float) -> deque[Event]:
        """What happened, as soon as something has; nothing after the timeout.

        The deque is the backend's own. Who has dealt with an event takes it out; what is left is given again.
        """

    def end_all(self) -> None:
        """End all workers now. What they had finished is kept, and `start_over` starts them anew."""

    def wake_for(self, bell: Bell) -> None:
        """Have `wait` return when the bell sounds, though nothing may have happened. For who submits from elsewhere."""

    def start_over(self) -> None:
        """End all workers and start them anew, as if the supervisor had been lost. What they had finished is kept.

        For when a signal handler has raised inside next().
        """

    def resume(self, epoch: Epoch, worker_id: int | None = None) -> None:
        """Tell all workers, or one, that a new epoch begins."""

    def take_back(self, worker_id: int, last_unit: int) -> int:
        """The worker is to begin none of its units up to this one. Returns the latest that it may have begun."""

    def retire(self, worker_id: int) -> None:
        """Let a worker end after what it has in hand; it is not replaced."""

    def bring_back(self, worker_id: int) -> None:
        """Start a worker again that was retired and is gone. It is to be given its progress."""

    def memory(self, worker_id: int) -> WorkerMemory:
        """What a worker has, by its own word."""

    def used_bytes(self, worker_id: int) -> int:
        """What a worker has now, beyond its birth, as seen from outside."""

    def set_slot_bytes(self, nbytes: int) -> None:
        """Tell whoever watches the budget what the slots take."""

    def stop(self, grace_s: float) -> None:
        """End everything. Takes no longer than the grace and a little, whatever the workers do."""


BackendFactory = Callable[[Job, SlotPool, object], WorkerBackend]
