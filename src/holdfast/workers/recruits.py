"""Main's side of one worker process of the portable backend, and of one worker id through all its processes.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import multiprocessing.process
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import psutil

from holdfast.diagnosis.evidence import Evidence
from holdfast.transport import main_module, names
from holdfast.transport.slots import PooledSegment
from holdfast.workers import no_start, pipes, recruit, start_methods, watching
from holdfast.workers.backend import WorkerLost
from holdfast.workers.board import Board, Doing
from holdfast.workers.descendants import Descendants
from holdfast.workers.handles import BaseWorkerHandle
from holdfast.workers.messages import ENDINGS, Reason
from holdfast.workers.passing import PassedSegment
from holdfast.workers.pipes import MainEnd
from holdfast.workers.recruit import Assignment, RecruitSpec, pack_assignment
from holdfast.workers.shared_job import SharedJob
from holdfast.workers.watching import Deadline, EndWatch, MemoryCap, tick_s

if TYPE_CHECKING:
    from holdfast.workers.traces import Traces  # not on Windows

_serials = itertools.count(1)
_NO_TRACES = ("registers, stacks, memory and stderr of the worker: kept only on Linux",)
_TICK_S = 1.0  # of the crew: how often it looks at what does not announce itself
_UNKNOWN_EXIT = 255  # somebody else has waited for it: what multiprocessing says where it cannot know


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may take."""

    sample_timeout_s: float | None = None
    memory_bytes: int | None = None
    budget_bytes: int | None = None  # of all workers, and the slots
    has_calls: bool = False  # which may have a limit of their own
    who: str = "worker"  # what it is called in what it says on stderr

    @property
    def tick_s(self) -> float | None:
        """How often to look; None: there is nothing to look for."""
        if self == Limits(who=self.who):
            return None
        watches_memory = self.memory_bytes is not None or self.budget_bytes is not None
        return tick_s(self.sample_timeout_s, watches_memory=watches_memory)


class _WorkerProcess(multiprocessing.get_context("spawn").Process):  # type: ignore[misc]
    """A proper multiprocessing process, numbered by us. It gets its name when it becomes a worker."""

    def __init__(self, identity: tuple[int, ...], spec: RecruitSpec) -> None:
        super().__init__(target=recruit.main, args=(spec,), name=no_start.RECRUIT, daemon=True)
        self._identity = identity


def make_traces() -> Traces | None:
    """What a worker will leave behind; None where the platform has no place for it."""
    if sys.platform != "linux":
        return None
    from holdfast.workers import untraced

    return untraced.make_traces()


class Recruit:
    """One worker process, from its start to its end. The spare has no `worker_id` yet."""

    def __init__(self, identity: tuple[int, ...], board: Board, job: SharedJob, *, is_rank: bool = False) -> None:
        self.worker_id = -1
        self._is_rank = is_rank
        self.serial = next(_serials)
        self.silent_ticks = 0  # since its pipe ended, while we waited
        self._stopped_ticks = 0  # the same, since it was stopped
        self.reason = Reason.EXITED
        self.ended_at: Doing | None = None  # by us; by now it may be elsewhere, and another sample would be blamed
        self._deadline = Deadline(None)
        self._cap = MemoryCap(-1, None)
        self._end_watch = EndWatch()
        self.lost: WorkerLost | None = None  # how it ended
        self._owner = names.this_owner()
        self._identity, self._board, self._job = identity, board, job
        self._job_for_one: object = None
        self.traces = make_traces()
        self._limits = Limits()
        self._descendants = Descendants()
        self.pid = -1
        self.process: Any = None

    def start(self, segments: dict[int, PooledSegment], book: list[Recruit]) -> None:
        """Start the process, which inherits the segments there are, and enter it into the book of all there are.

        Takes milliseconds, whatever the process does: the job is not in the pipe.
        """
        try:
            ours, theirs, room = pipes.pair()
        except BaseException:
            self._drop_traces()
            raise
        self.line = MainEnd(ours, room)
        passed = tuple((number, PassedSegment(segment)) for number, segment in segments.items())
        ends = self.traces.ends if self.traces is not None else None
        spec = RecruitSpec(
            theirs, self._board, self._job, passed, self._owner, self.serial, os.getpid(), ends, self._is_rank
        )
        start_methods.prepare("spawn")
        with start_methods.unnumbered():
            self.process = _WorkerProcess(self._identity, spec)
        try:
            with main_module.startable(), start_methods.interrupts_held_back():
                self.process.start()
                self.pid = self.process.pid
                book.append(self)
            if self.traces is not None:
                self.traces.begin(self.pid)
        except BaseException:
            if self not in book:
                self.line.close()
                self._drop_traces()
            raise
        finally:
            theirs.close()
        # Ours to end, not multiprocessing's: its exit handler would signal it from a forked child of this process too.
        multiprocessing.process._children.discard(self.process)  # type: ignore[attr-defined]
        self._job_for_one = self._job.take_for_one()

    def assign(self, assignment: Assignment, life: int, limits: Limits) -> None:
        self.worker_id = assignment.worker_id
        self._limits = limits
        if self.traces is not None:
            self.traces.stderr.name(f"{limits.who} {self.worker_id}")
        self._deadline = Deadline(limits.sample_timeout_s)
        self._cap = MemoryCap(self.pid, limits.memory_bytes)
        self._board.reset(self.worker_id, life)
        self.line.send(pack_assignment(assignment))

    def receive(self) -> tuple[bytes, list[str]] | None:
        received = self.line.receive()
        self._job_for_one = None  # it runs, so it has opened what was made for it
        return received

    def is_to_end(self, doing: Doing, elapsed_s: float) -> bool:
        """Whether it is at one step too long, or has too much memory. Asked at every tick of ours."""
        if self.ended_at is None and self._deadline.is_over(doing, elapsed_s):
            self.reason, self.ended_at = Reason.STOPPED if self._is_stopped() else Reason.HUNG, doing
            if self.traces is not None and self.reason is Reason.HUNG:
                self.traces.take_stacks()
        elif self.ended_at is None and self._cap.is_over(self._board.memory(self.worker_id), doing):
            self.reason, self.ended_at = Reason.OVER_LIMIT, doing
        return self.ended_at is not None

    def end_for_budget(self, doing: Doing) -> None:
        if self.ended_at is None:
            self.reason, self.ended_at = Reason.OVER_BUDGET, doing
            self.process.kill()

    def end(self, how: Literal["terminate", "kill"]) -> None:
        """On the user's behalf."""
        self.note_descendants(at_once=True)
        getattr(self.process, how)()

    def watch(self) -> None:
        """At every tick of ours: what will be asked for when it has ended."""
        if self.traces is not None and self.worker_id >= 0:
            self.traces.watch(self._board.doing(self.worker_id), time.monotonic())

    def evidence(self, doing: Doing) -> Evidence:
        """Of how it ended, once it has."""
        return dataclasses.replace(
            self._evidence(doing),
            sample_timeout_s=self._limits.sample_timeout_s,
            memory_limit_bytes=self._limits.memory_bytes,
            memory_budget_bytes=self._limits.budget_bytes,
            memory_used_bytes=self._cap.used_bytes,
            memory_kept_bytes=self._cap.kept_bytes,
        )

    def _evidence(self, doing: Doing) -> Evidence:
        if self.traces is None:
            ending, code = ENDINGS[self.reason], self.process.exitcode
            return Evidence(ending, code, doing.words, "portable", pid=self.pid, missing=_NO_TRACES)
        from holdfast.workers.traces import Surroundings

        traces, self.traces = self.traces, None
        evidence = traces.evidence(self.reason, self.exitcode, doing, Surroundings("portable", False))
        return dataclasses.replace(evidence, exit_code=self.process.exitcode)  # None: not known

    def _drop_traces(self) -> None:
        if self.traces is not None:
            self.traces.discard()
            self.traces = None

    def note_descendants(self, *, at_once: bool = False) -> None:
        """Of a rank: what it has started is ended with it."""
        if self._is_rank:
            self._descendants.look((self.pid,), at_once=at_once)

    def stays_stopped(self) -> bool:
        """Whether it was not continued within the grace, in ticks of ours. Asked at every tick."""
        self._stopped_ticks = self._stopped_ticks + 1 if self._is_stopped() else 0
        if self._stopped_ticks * _TICK_S <= watching.STOPPED_GRACE_S:
            return False
        self.reason = Reason.STOPPED if self.reason is Reason.EXITED else self.reason
        return True

    def does_not_end(self) -> bool:
        """Whether it has been on its way out for too long. Asked at every tick."""
        if self.worker_id < 0 or not self._end_watch.is_over(self._board.doing(self.worker_id), _TICK_S):
            return False
        self.reason = Reason.LEFT if self.reason is Reason.EXITED else self.reason
        return True

    def _is_stopped(self) -> bool:
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def has_ended(self) -> bool:
        """Whether the process is surely gone."""
        return self.process.exitcode is not None or not psutil.pid_exists(self.pid)

    @property
    def exitcode(self) -> int:
        code: int | None = self.process.exitcode
        return _UNKNOWN_EXIT if code is None else code

    def forget(self) -> None:
        """The process has ended, or is abandoned: let go of everything."""
        self._descendants.end()
        self.line.close()
        self._drop_traces()
        names.remove_all(names.Namer(self._owner, self.serial).prefix)  # what it made and could not tell us of
        with contextlib.suppress(ValueError):  # still running, in the kernel: never waited for
            self.process.close()


class PortableWorkerHandle(BaseWorkerHandle):
    """A child of our own."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._recruit: Recruit | None = None

    @property
    def exitcode(self) -> int | None:
        return self._recruit.process.exitcode if self._recruit is not None else self._exitcode

    def is_alive(self) -> bool:
        return self._recruit is not None and not self._recruit.has_ended()

    @property
    def sentinel(self) -> int:
        """Ready when the process has ended; -1 if it has."""
        return int(self._recruit.process.sentinel) if self._recruit is not None else -1

    def join(self, timeout: float | None = None) -> None:
        """Wait until the process has ended."""
        if self._recruit is not None:
            self._recruit.process.join(timeout)

    def terminate(self) -> None:
        if self._recruit is not None:
            self._recruit.end("terminate")

    def kill(self) -> None:
        if self._recruit is not None:
            self._recruit.end("kill")

    # -- for the backend -------------------------------------------------------------------------------------------

    def begin_life(self, recruit: Recruit) -> None:
        self._recruit, self._pid, self._exitcode = recruit, recruit.pid, None

    def end_life(self, exitcode: int) -> None:
        self._recruit, self._exitcode = None, exitcode
