"""The backend for every platform: no fork, no descriptors handed over, no signals.

    PortableCrew ──Process.start──► worker k        ◄─ one pipe per process (units out, headers back) ─►
                 └─────────────────► the spare      warm: it has imported everything and waits for a worker's place

What must hold:
- Every wait has an end: it wakes for a message, for the end of a process, or after a second, and then looks whether a
  process has ended that its sentinel does not show (a grandchild may hold it open).
- No send blocks (`pipes.py`), and starting a process does not wait for it (`shared_job.py`).
- What a worker finished before it died is good: its pipe is drained before its death is reported, and that only when
  the process is surely gone, because its slots are used again.
- A segment has a name only until every process has opened it. A process that starts later inherits it.

Runs in: main process, in the thread that calls `next()`; of a pool, in a thread of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import connection
from typing import Any

import torch.multiprocessing

from holdfast import counted
from holdfast.board_rows import Phase
from holdfast.diagnosis import refusals
from holdfast.diagnosis.evidence import Ending, Evidence
from holdfast.errors import WorkerInitError
from holdfast.memory import readings
from holdfast.transport import names
from holdfast.transport.segments import Handle, discard
from holdfast.transport.slots import Slot, SlotPool
from holdfast.workers import giving_up, messages, no_start
from holdfast.workers.announcements import Announcements
from holdfast.workers.backend import Event, SupervisorLost, UnitDone, WorkerHandle, WorkerLost, is_lost_again
from holdfast.workers.bell import Bell
from holdfast.workers.board import Board, Doing, WorkerMemory
from holdfast.workers.job import Job
from holdfast.workers.lives import Lives
from holdfast.workers.messages import Epoch, Reason, Result, Unit, reason_of_end
from holdfast.workers.recruit import Assignment
from holdfast.workers.recruits import Limits, PortableWorkerHandle, Recruit
from holdfast.workers.restarts import is_from_outside, starts_again
from holdfast.workers.shared_job import SharedJob
from holdfast.workers.watching import BudgetWatch

_POLL_S = 1.0
_HUNG_UP_TICKS = 5  # a process whose pipe has ended and that goes on for so long, while we wait, is ended
_KILL_AFTER_TERM_S = 0.5
_GONE_AFTER_KILL_S = 1.0
_MAX_SPARE_DEATHS = 2  # before an assignment, in a row: then there is no spare any more


def check_context(context: Any) -> None:
    """Refuse a start method that this backend does not have. None, the platform's, is replaced by spawn."""
    method = "spawn" if context is None else _method_of(context)
    if method != "spawn":
        raise ValueError(
            f"multiprocessing_context={method!r} is not possible with the portable backend, which spawns its workers: "
            f"use None or 'spawn'"
        )


def _method_of(context: Any) -> str:
    if isinstance(context, str):
        return context
    method: str = getattr(context, "get_start_method", multiprocessing.get_start_method)()
    return method


class PortableCrew:
    """The worker processes of one iterator."""

    def __init__(self, job: Job, pool: SlotPool, context: Any) -> None:
        check_context(context)
        pool.new_name = new_name = names.Namer(names.this_owner(), maker=0)
        self._job = SharedJob(job, new_name)
        self._front = job.front
        self._board: Board | None = Board.create(job.num_workers, new_name())
        self._workers = [PortableWorkerHandle(context or torch.multiprocessing) for _ in range(job.num_workers)]
        counted.employ(job.front or counted.LOADER, self._workers)
        self._recruits: list[Recruit] = []  # every process there is
        self._by_worker: dict[int, Recruit] = {}
        self._spare: Recruit | None = None
        self._spare_deaths = 0
        self._has_worked = False  # a unit was finished: it makes sense to have a spare
        self._wants_spare = False
        self._has_ranks = job.has_ranks  # of which none is replaced: there is no spare
        self._announcements = Announcements(pool, self._recruits)
        self._holds: list[object] = []
        self._retired: set[int] = set()
        self._unsettled: set[int] = set()  # workers that were lost, of which the iterator may not know yet
        self._max_restarts = job.max_restarts
        self._has_been_ready = job.has_been_ready  # a worker of this loader: what they start with is good
        self._start_deaths: Counter[int] = Counter()  # of each worker, in a row, before it was ready
        has_calls = job.calling is not None
        self._limits = Limits(job.sample_timeout_s, job.care.memory_limit, job.memory_budget, has_calls, job.who)
        self._budget_watch = BudgetWatch(job.memory_budget)
        self._look_s = self._limits.tick_s or _POLL_S
        self._last_look = time.monotonic()
        self._backlog: deque[Event] = deque()  # happened, not yet dealt with by the iterator
        self._last_tick = time.monotonic()
        self._bell: Bell | None = None
        self.new_interpreters: str | None = None  # all are, always
        self.start_method = "portable"
        self.lives = Lives()

    @property
    def workers(self) -> Sequence[WorkerHandle]:
        return self._workers

    @property
    def board(self) -> Board:
        assert self._board is not None
        return self._board

    # -- starting --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        no_start.leave_if_unguarded()
        names.sweep()
        try:
            for worker_id in range(len(self._workers)):
                self._begin_life(worker_id)
        except OSError as error:
            if error.errno not in refusals.NUMBERS:
                raise  # by the user's own code, while it was pickled
            raise giving_up.cannot_start(error, "no batch was loaded", front=self._front) from error

    def _begin_life(self, worker_id: int) -> None:
        """Give a worker id to the spare, else to a new process."""
        assert self._board is not None
        life = self._board.doing(worker_id).life + 1
        handle = self._workers[worker_id]
        if self._spare is not None and not self._spare.has_ended():
            recruit, self._spare = self._spare, None
            self._spare_deaths = 0
        else:
            recruit = self._recruit(handle.identity)
        self._by_worker[worker_id] = recruit
        recruit.assign(Assignment(worker_id, handle.name, handle.identity), life, self._limits)
        handle.begin_life(recruit)
        self.lives.started(worker_id, recruit.pid)

    def _recruit(self, identity: tuple[int, ...]) -> Recruit:
        assert self._board is not None
        recruit = Recruit(identity, self._board, self._job, is_rank=self._has_ranks)
        recruit.start(self._announcements.known(), self._recruits)
        return recruit

    def _start_spare(self) -> None:
        self._wants_spare = False
        with contextlib.suppress(Exception):  # the next death will say why no process can be started
            self._spare = self._recruit(())

    # -- sending ---------------------------------------------------------------------------------------------------

    def submit(self, worker_id: int, unit: Unit, slots: tuple[Slot, ...]) -> None:
        self._order(worker_id, messages.pack_unit(unit), *slots)

    def restore(self, worker_id: int, progress: bytes, slot: Slot | None) -> None:
        if is_lost_again(worker_id, self._backlog):
            return
        self._unsettled.discard(worker_id)
        if slot is None:
            self._order(worker_id, messages.pack_restore(progress))
        else:
            self._order(worker_id, messages.pack_restore(slot.ref), slot)

    def resume(self, epoch: Epoch, worker_id: int | None = None) -> None:
        for each in range(len(self._workers)) if worker_id is None else (worker_id,):
            self._order(each, messages.pack_resume(epoch))

    def retire(self, worker_id: int) -> None:
        self._retired.add(worker_id)
        recruit = self._by_worker.get(worker_id)
        if recruit is not None:
            recruit.line.end_sending()

    def bring_back(self, worker_id: int) -> None:
        self._retired.discard(worker_id)
        if worker_id not in self._by_worker:
            self._begin_life(worker_id)

    def take_back(self, worker_id: int, last_unit: int) -> int:
        assert self._board is not None
        return self._board.take_back(worker_id, last_unit)

    def memory(self, worker_id: int) -> WorkerMemory:
        assert self._board is not None
        return self._board.memory(worker_id)

    def used_bytes(self, worker_id: int) -> int:
        pid = self._workers[worker_id].pid
        now = readings.anonymous_bytes(pid) if pid is not None else None
        return max(0, (now or 0) - self.memory(worker_id).born)

    def set_slot_bytes(self, nbytes: int) -> None:
        assert self._board is not None
        self._board.set_slot_bytes(nbytes)

    def _order(self, worker_id: int, data: bytes, *slots: Slot) -> None:
        if worker_id in self._unsettled:
            return  # it will be told again what it had been told, and this with it
        for slot in slots:
            self._announcements.announce(slot.segment)
        recruit = self._by_worker.get(worker_id)
        if recruit is not None:
            recruit.line.send(data)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wake_for(self, bell: Bell) -> None:
        self._bell = bell

    def wait(self, timeout_s: float) -> deque[Event]:
        if not self._backlog:
            self._holds.clear()  # what they held has been adopted
            self._wait(timeout_s)
        return self._backlog

    def _wait(self, timeout_s: float) -> None:
        """Put what happens into the backlog, each event as soon as it is known: an interrupt must not lose it."""
        if self._board is None:
            raise WorkerInitError("the workers are gone and could not be started again")
        for recruit in self._recruits:
            if recruit.line.is_torn:
                recruit.process.kill()  # an interrupt left it in the middle of a message
        ready = set(connection.wait(self._watched(), min(timeout_s, _POLL_S, self._look_s)))
        if self._bell is not None and self._bell.connection in ready:
            self._bell.hush()
        for recruit in list(self._recruits):
            if recruit.line.connection in ready:
                self._receive(recruit)
            if recruit.traces is not None and recruit.traces.stderr.fd in ready:
                recruit.traces.stderr.take_in()
        for recruit in list(self._recruits):
            if recruit.process.sentinel in ready and self._ends(recruit):
                self._bury(recruit)
        if time.monotonic() - self._last_tick >= _POLL_S:
            self._last_tick = time.monotonic()
            self._tick()
        if self._limits.tick_s is not None:
            self._look()
        self._announcements.remove_names()
        if self._wants_spare and not self._has_ranks and self._spare is None:
            self._start_spare()

    def _watched(self) -> list[Any]:
        lines = (r.line for r in self._recruits)
        return [
            *([self._bell.connection] if self._bell is not None else []),
            *(line.connection for line in lines if not line.is_over and not line.is_torn),
            *(r.process.sentinel for r in self._recruits),
            *(r.traces.stderr.fd for r in self._recruits if r.traces is not None and r.traces.stderr.wants_more),
        ]

    def _receive(self, recruit: Recruit) -> None:
        """Take in what a process says: the header of a finished unit, or only how much it has read."""
        received = recruit.receive()
        if received is None:
            return
        result = messages.unpack_result(received[0])
        self._holds.extend(map(names.hold, received[1]))
        self._backlog.append(UnitDone(recruit.worker_id, result, _claim(received[1], result)))
        self._has_been_ready = True
        if not self._has_worked:
            self._has_worked = self._wants_spare = True

    # -- deaths ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Every second that we wait: look at what does not announce itself. (Ticks, not a clock: a process that was
        stopped together with this one has not been silent.)
        """
        for recruit in list(self._recruits):
            recruit.watch()
            recruit.note_descendants()
            recruit.silent_ticks += recruit.line.is_over
            if recruit.silent_ticks >= _HUNG_UP_TICKS or recruit.stays_stopped() or recruit.does_not_end():
                recruit.process.kill()
            if recruit.has_ended():
                self._bury(recruit)

    def _look(self) -> None:
        """End workers that are at one step for too long, or have too much memory. (In ticks: see `watching.py`.)"""
        assert self._board is not None
        now = time.monotonic()
        if now - self._last_look < self._look_s:
            return
        self._last_look = now
        for recruit in self._by_worker.values():
            if recruit.is_to_end(self._board.doing(recruit.worker_id), self._look_s):
                recruit.process.kill()
        if not self._budget_watch.has_budget:
            return
        has = {worker_id: readings.anonymous_bytes(recruit.pid) for worker_id, recruit in self._by_worker.items()}
        too_many = self._budget_watch.find_one_too_many(self._board, has)
        if too_many is not None:
            self._by_worker[too_many].end_for_budget(self._board.doing(too_many))

    def _ends(self, recruit: Recruit) -> bool:
        """Its sentinel says that it has ended. Should it be there all the same, it has closed what was not its own."""
        recruit.process.join(_GONE_AFTER_KILL_S)
        if not recruit.has_ended():
            recruit.process.kill()
            recruit.process.join(_GONE_AFTER_KILL_S)
        return recruit.has_ended()

    def _bury(self, recruit: Recruit) -> None:
        """Keep what it finished, say how it ended, and start the next life unless there is to be none."""
        self._drain(recruit)
        if recruit.worker_id < 0:
            self._spare = self._spare if recruit is not self._spare else None
            self._spare_deaths += 1
            self._let_go(recruit)
        else:
            lost = recruit.lost = recruit.lost or self._lose(recruit)
            if lost.replaced and self._by_worker.get(lost.worker_id) is recruit:
                self._begin_next_life(recruit)
            self._let_go(recruit)
            self._unsettled.add(lost.worker_id)
            self._backlog.append(lost)
        self._wants_spare = self._has_worked and self._spare_deaths < _MAX_SPARE_DEATHS

    def _lose(self, recruit: Recruit) -> WorkerLost:
        assert self._board is not None
        worker_id, exitcode = recruit.worker_id, recruit.exitcode
        self._workers[worker_id].end_life(exitcode)
        doing = recruit.ended_at or self._board.doing(worker_id)
        recruit.reason = reason_of_end(recruit.reason, doing, exitcode)
        replaced = worker_id not in self._retired
        is_end = replaced and not self._is_worth_another(recruit, doing)
        # If another process killed a loader's worker, where it was in the script says nothing about why.
        is_own = self._has_ranks or not is_from_outside(exitcode)
        if (is_end and is_own) or (self._has_ranks and no_start.is_unguarded(exitcode)):
            self._check_beginning(recruit, doing)
        replaced = replaced and not is_end
        self.lives.ended(worker_id, recruit.reason, replaced=replaced)
        if not replaced:
            del self._by_worker[worker_id]
        return WorkerLost(
            worker_id, recruit.pid, exitcode, doing, replaced, recruit.reason, self._evidence(recruit, doing)
        )

    def _check_beginning(self, recruit: Recruit, doing: Doing) -> None:
        """Raise, if it ended before it could be told what to do."""
        if not recruit.line.was_heard:
            tail = recruit.evidence(doing).stderr_tail
            who = f"{self._limits.who} {recruit.worker_id}"
            code = recruit.exitcode
            raise no_start.error_of(who, recruit.pid, code, None, tail, front=self._front)

    def _evidence(self, recruit: Recruit, doing: Doing) -> Evidence:
        evidence = recruit.evidence(doing)
        had_bytes = self._budget_watch.had_bytes(recruit.worker_id)
        used_bytes = had_bytes if recruit.reason is Reason.OVER_BUDGET else evidence.memory_used_bytes or had_bytes
        return dataclasses.replace(evidence, memory_used_bytes=used_bytes)

    def _is_worth_another(self, recruit: Recruit, doing: Doing) -> bool:
        assert self._board is not None
        worker_id = recruit.worker_id
        rows = map(self._board.doing, range(len(self._workers)))
        self._has_been_ready |= any(row.phase is not Phase.STARTING for row in rows)
        if doing.phase is not Phase.STARTING:
            self._start_deaths[worker_id] = 0
            return True
        self._start_deaths[worker_id] += 1
        return starts_again(
            recruit.exitcode,
            self._start_deaths[worker_id],
            self._max_restarts,
            has_been_ready=self._has_been_ready,
            is_for_memory=recruit.traces is not None and recruit.traces.saw_memory_kill(),
        )

    def _begin_next_life(self, recruit: Recruit) -> None:
        try:
            self._begin_life(recruit.worker_id)
        except Exception as error:
            done = f"worker {recruit.worker_id} (pid {recruit.pid}) is gone, and no other was started"
            raise giving_up.cannot_start(error, done, recruit.worker_id, front=self._front) from error

    def _drain(self, recruit: Recruit) -> None:
        while recruit.line.has_news():
            self._receive(recruit)

    def _let_go(self, recruit: Recruit) -> None:
        self._announcements.lost(recruit)
        recruit.forget()
        self._recruits.remove(recruit)

    def end_all(self) -> None:
        for recruit in self._recruits:
            recruit.process.kill()
        _join(self._recruits, _GONE_AFTER_KILL_S)
        for recruit in list(self._recruits):
            self._drain(recruit)
            self._dismiss(recruit)
        self._by_worker.clear()
        self._spare = None
        self._announcements.remove_names()  # nobody is left to open them; who is started later inherits them

    def start_over(self) -> None:
        assert self._board is not None
        self.end_all()
        doing = tuple(map(self._board.doing, range(len(self._workers))))
        self._wants_spare = self._has_worked
        self._unsettled.update(range(len(self._workers)))
        try:
            for worker_id in range(len(self._workers)):
                if worker_id not in self._retired:
                    self._begin_life(worker_id)
        except Exception as error:
            done = "the workers were ended after a signal handler raised inside next(), and not started again"
            raise giving_up.cannot_start(error, done, front=self._front) from error
        self._backlog.append(SupervisorLost(Evidence(Ending.INTERRUPTED, start_method=self.start_method), doing))

    def _dismiss(self, recruit: Recruit) -> None:
        """It has ended, or is abandoned, and nobody takes its place."""
        if recruit.worker_id >= 0:
            self._workers[recruit.worker_id].end_life(recruit.exitcode)
            self.lives.ended(recruit.worker_id)
        self._let_go(recruit)

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self, grace_s: float) -> None:
        if self._board is None:
            return
        self._board.set_closing()
        self.lives.is_closing = True
        for recruit in self._recruits:
            if recruit.worker_id < 0:
                recruit.process.kill()  # the spare has nothing in hand
            recruit.line.end_sending()
            self._drain(recruit)
            recruit.line.close()
        self._end_all(grace_s)
        for recruit in list(self._recruits):
            self._dismiss(recruit)
        self._by_worker.clear()
        self._spare = None
        while self._backlog:
            event = self._backlog.popleft()
            for handle in event.handles if isinstance(event, UnitDone) else ():
                discard(handle)
        self._announcements.close()
        self._job.close()
        self._board.close()
        self._board = None

    def _end_all(self, grace_s: float) -> None:
        """Let workers end by themselves for a while, then make them."""
        steps: Iterable[tuple[Callable[[Any], None], float]] = (
            (lambda process: None, grace_s),
            (lambda process: process.terminate(), _KILL_AFTER_TERM_S),
            (lambda process: process.kill(), _GONE_AFTER_KILL_S),
        )
        for act, patience_s in steps:
            left = [recruit for recruit in self._recruits if not recruit.has_ended()]
            for recruit in left:
                recruit.note_descendants(at_once=True)
                act(recruit.process)
            _join(left, patience_s)


def _join(recruits: list[Recruit], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    for recruit in recruits:
        recruit.process.join(max(0.0, deadline - time.monotonic()))


def _claim(segment_names: list[str], result: Result) -> list[Handle]:
    """Open what a worker spilled. What cannot be opened is missing, as where the kernel hands over descriptors."""
    handles: list[Handle] = []
    for name in segment_names[: len(result.spilled)]:
        with contextlib.suppress(OSError):
            handles.append(names.claim(name))
    return handles
