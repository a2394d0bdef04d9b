"""Calls on their way to workers and back: what a pool and a launcher are built on.

    send(call, worker_id) ──► worker ──► wait() ──► Returned, Raised or Failed; Lost, and what its worker had in hand

Who uses it decides which worker gets which call, and what becomes of one that was lost. Everything here is called by
one thread; others wake it by ringing `bell`. Runs in: main process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.board_rows import Phase
from holdfast.transport import layout
from holdfast.transport.arguments import Packer
from holdfast.transport.main_module import SentByName
from holdfast.transport.slots import SlotPool
from holdfast.workers import backends, messages
from holdfast.workers.backend import Event, SupervisorLost, UnitDone, WorkerHandle, WorkerLost
from holdfast.workers.bell import Bell
from holdfast.workers.board import Board, Doing
from holdfast.workers.failures import Failure
from holdfast.workers.in_flight import DescriptorsRanOut, InFlight, Sent
from holdfast.workers.job import Job
from holdfast.workers.lives import Lives
from holdfast.workers.messages import Epoch, Kind, Progress, SlotRef, Unit

_INLINE = 32 * 1024  # a larger request travels in a slot
_SPARE_SLOTS = 3
_NOT_IN_HAND = (Phase.STARTING, Phase.IDLE, Phase.ENDING)
_NOTHING_TO_TAKE_UP = messages.pack_progress(Epoch(None, None), Progress({}, {}))


@dataclass(slots=True, eq=False, kw_only=True)
class Call(Sent):
    """One call of the user's. It may be sent again after it was lost."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    limit_ms: int = 0  # 0: the job's; `messages.NO_LIMIT`
    limit_bytes: int = 0  # the same
    deaths: int = 0  # of workers that ran it


class Returned(NamedTuple):
    """A call has come back with a value."""

    call: Call
    value: Any


class Raised(NamedTuple):
    """The function, or the initializer of its worker, raised."""

    call: Call
    failure: Failure


class Failed(NamedTuple):
    """What came back could not be taken in here."""

    call: Call
    error: BaseException


class TakenBack(NamedTuple):
    """The worker has left it alone: it may be sent again as it is."""

    call: Call


class Lost(NamedTuple):
    """A worker, or all of them, are gone. New ones have taken their place unless `loss.replaced` says otherwise."""

    loss: WorkerLost | SupervisorLost
    running: tuple[Call, ...]  # they had begun
    waiting: tuple[Call, ...]  # they had been sent, and not begun: they may be sent again as they are


Happening = Returned | Raised | Failed | TakenBack | Lost


class Calls:
    """Workers that run calls, and the calls they have been sent."""

    def __init__(self, job: Job, context: Any = None, backend: str | None = None) -> None:
        """`context`: of multiprocessing; `backend`: None is what fits this platform."""
        self._num_workers = job.num_workers
        self._slots = SlotPool(warm_slots=2 * job.num_workers + _SPARE_SLOTS)
        self._backend = backends.find(backend)(job, self._slots, context)
        self._in_flight: InFlight[Call] = InFlight(self._slots)
        self._numbers = itertools.count()
        self._packer: Packer | None = None
        self._has_heard = False
        self.bell = Bell()
        self._backend.wake_for(self.bell)

    @property
    def start_method(self) -> str:
        return self._backend.start_method

    @property
    def workers(self) -> Sequence[WorkerHandle]:
        """Waits until all have been started."""
        return self._backend.workers

    @property
    def board(self) -> Board:
        return self._backend.board

    @property
    def lives(self) -> Lives:
        return self._backend.lives

    def pids(self) -> dict[int, int]:
        """By worker id; none as long as nothing has come back, so that nobody waits here until they are started."""
        workers = self._backend.workers if self._has_heard else ()
        return {worker_id: handle.pid for worker_id, handle in enumerate(workers) if handle.pid is not None}

    def start(self) -> None:
        self._backend.start()
        self._learn_names()

    def _learn_names(self) -> None:
        self._packer = Packer(self._slots, SentByName(is_forked=self._backend.start_method == "fork"))

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, call: Call, worker_id: int) -> None:
        """Send it, once more if need be. Raises NotPicklable; then nothing has been sent."""
        assert self._packer is not None
        packed = self._packer.pack(call.fn, call.args, call.kwargs)
        refs = tuple(slot.ref for slot in packed.slots)
        wanted = messages.pack_call(messages.Call(packed.layout, refs, call.limit_ms, call.limit_bytes))
        request: bytes | SlotRef = wanted
        call.request = packed.slots
        if len(wanted) > _INLINE:
            stored = self._in_flight.store(messages.pack_request(wanted, (0,)))
            call.request, request = (*call.request, stored), stored.ref
        call.worker_id = worker_id
        call.attempt += 1
        slot = call.slot = self._slots.acquire()
        unit = next(self._numbers)
        self._in_flight.add(unit, call)
        self._backend.submit(worker_id, Unit(unit, call.attempt, slot.ref, request), (slot, *call.request))

    def take_back(self, worker_id: int) -> list[Call]:
        """The calls that a worker has been sent and will surely not begin. They may be sent to others.

        Takes some milliseconds. Of others that it has not begun it may say so later: `TakenBack`.
        """
        behind = self._in_flight.sent_to(worker_id)[1:]
        if not behind:
            return []
        begun = self._backend.take_back(worker_id, behind[-1])
        taken = [unit for unit in behind if unit > begun]
        calls = [self._in_flight[unit] for unit in taken]
        for unit in taken:
            self._in_flight.give_up(unit)
        return calls

    def retire(self, worker_id: int) -> None:
        """Let a worker end after what it has been sent. Nobody takes its place."""
        self._backend.retire(worker_id)

    # -- what comes back -------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> list[Happening]:
        """What has happened, as soon as something has; nothing after the timeout, or when the bell was rung.

        Raises WorkerError when there are no workers any more, and none can be started.
        """
        happened: list[Happening] = []
        events = self._backend.wait(timeout_s)
        while events:
            happening = self._take_in(events[0])
            events.popleft()
            if happening is not None:
                happened.append(happening)
        return happened

    def _take_in(self, event: Event) -> Happening | None:
        if isinstance(event, UnitDone):
            return self._take_result(event)
        if isinstance(event, WorkerLost):
            return self._lose(event, (event.worker_id,), (event.doing,), is_replaced=event.replaced)
        everybody = range(self._num_workers)
        self._learn_names()  # new workers have what there is now
        return self._lose(event, everybody, event.doing, is_replaced=True)

    def _take_result(self, done: UnitDone) -> Happening | None:
        unit, result = done.result.unit, done.result
        self._has_heard = True
        call = self._in_flight.get(unit)
        if call is not None and result.aside == messages.ARGUMENTS_KEPT:
            for slot in call.request:
                slot.is_retired = True
        try:
            if self._in_flight.take(done) is None:
                return None
        except DescriptorsRanOut:
            self._in_flight.give_up(unit)
            assert call is not None
            return Failed(call, OSError("what the call returned could not be received: too many open files"))
        assert call is not None
        self._in_flight.forget(unit)
        self._slots.saw_batch(sum(result.used))
        return self._read(call)

    def _read(self, call: Call) -> Happening:
        assert call.result is not None
        areas, result = call.areas, call.result
        call.areas, call.result = [], None
        try:
            value = layout.decode(result.layout, areas, self._slots)
        except (Exception, SystemExit) as error:  # a class of the user's may do anything when it is unpickled
            return Failed(call, error)
        finally:
            for slot in areas:
                self._slots.delivered(slot)
        if result.kind == Kind.BATCH:
            return Returned(call, value)
        return Raised(call, Failure(*value)) if result.kind == Kind.FAILURE else TakenBack(call)

    def _lose(
        self,
        loss: WorkerLost | SupervisorLost,
        worker_ids: Sequence[int],
        doing: Sequence[Doing],
        *,
        is_replaced: bool,
    ) -> Lost:
        running: list[Call] = []
        waiting: list[Call] = []
        for worker_id, was_doing in zip(worker_ids, doing, strict=True):
            for unit in self._in_flight.sent_to(worker_id):
                call = self._in_flight[unit]
                self._in_flight.give_up(unit)
                is_in_hand = was_doing.unit == unit and was_doing.phase not in _NOT_IN_HAND
                (running if is_in_hand else waiting).append(call)
            if is_replaced:
                self._backend.restore(worker_id, _NOTHING_TO_TAKE_UP, None)
        return Lost(loss, tuple(running), tuple(waiting))

    def under_way(self) -> list[Call]:
        """What has been sent and has not come back."""
        return [self._in_flight[unit] for unit in self._in_flight]

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop(self, grace_s: float) -> None:
        """End everything. Takes no longer than the grace and a little, whatever the workers do."""
        try:
            self._backend.stop(grace_s)
        finally:
            for unit in self._in_flight:
                self._in_flight.give_up(unit)
            self._slots.close()
            self.bell.close()
