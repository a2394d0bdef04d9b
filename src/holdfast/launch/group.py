"""The ranks of one `spawn()`, from their start to their end: workers of a supervisor, each with one call to run.

    RankGroup ──Calls──► supervisor ──► rank k: program.run(k), then it ends; nobody takes its place
        └ Register: what is known of each ──► the first to fail ──► the others are ended ──► again, or the error

Who joins decides; between two joins nothing is decided. The supervisor keeps `timeout` and `memory_limit` all the time,
and ends the ranks, and all they have started, when the main process is gone. Where there is no supervisor, a thread
looks after ranks that nobody joins: limits are kept, and what they write is passed on, before they have to wait.
Runs in: main process.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.multiprocessing.spawn import ProcessContext

from holdfast.counted import SPAWN
from holdfast.errors import NotPicklable, WorkerError
from holdfast.incident import Incidents
from holdfast.launch import judging, program
from holdfast.launch.errors import RankError, RankInitError
from holdfast.launch.program import Program
from holdfast.launch.register import Register
from holdfast.launch.states import End, RankState
from holdfast.words import plural
from holdfast.workers.backend import WorkerHandle
from holdfast.workers.calls import Call, Calls
from holdfast.workers.job import Calling, Job, job_of_calls
from holdfast.workers.run import RunOfCalls

_LOOK_S = 1.0
_SETTLES_S = 2.0  # within which a failure that looks like a consequence finds its cause
_GONE_AFTER_KILL_S = 2.0
_ATTEND_EVERY_S = 0.1
_WHEN_INTERRUPTED_S = 1.0  # for ranks that an interrupt has reached too, to end by themselves


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The arguments of `spawn()`, checked."""

    nprocs: int
    daemon: bool = False
    start_method: str = "spawn"
    timeout_s: float | None = None
    memory_limit: int | None = None
    max_restarts: int = 0
    grace_s: float = 5.0
    backend: str | None = None
    is_recorded: bool = True


class RankGroup(ProcessContext):
    """What `spawn(join=False)` gives: torch's `ProcessContext`, with `incidents`, and `close()` to end it early."""

    def __init__(self, ranks_program: Program, options: GroupOptions) -> None:
        # Not torch's: it wants processes that are our children.
        self._program, self._options = ranks_program, options
        self._owner_pid = os.getpid()
        self._calls: Calls | None = None
        self._lock = threading.RLock()  # who holds it talks to the ranks
        self._attendant: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._seen_by_attendant: WorkerError | None = None
        self._handles: list[Any] = []
        self._register = Register(())
        self.incidents = Incidents()
        self._run = RunOfCalls(SPAWN, is_recorded=options.is_recorded)
        self.error_files: list[str] = []  # of torch's, which has one for each rank
        if options.nprocs:
            self._run.begin(ranks_program.fn, options.nprocs, options.backend or options.start_method)
            self._begin()

    # -- what torch's has ------------------------------------------------------------------------------------------

    @property
    def processes(self) -> Sequence[WorkerHandle]:
        """By rank. After a restart of the group they are others."""
        return list(self._handles)

    @property
    def sentinels(self) -> dict[int, int]:  # type: ignore[override]
        """Of ranks that have not ended: what `multiprocessing.connection.wait` waits for, and their ranks."""
        return {handle.sentinel: rank for rank, handle in enumerate(self._handles) if handle.is_alive()}

    def pids(self) -> list[int]:
        return [int(handle.pid) for handle in self._handles]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for all ranks; past `timeout` seconds give up waiting. Returns whether all have ended.

        When one has failed the others are ended, by SIGTERM and after `grace_period` seconds by SIGKILL. Then the group
        is started again, if `max_restarts` allows it, or the failure of the first is raised.
        """
        if self._calls is None or os.getpid() != self._owner_pid:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        grace_s = self._options.grace_s if grace_period is None else grace_period
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return False  # another thread joins
        try:
            return self._join_or_close(deadline, grace_s)
        finally:
            self._lock.release()

    def _join_or_close(self, deadline: float | None, grace_s: float) -> bool:
        try:
            return self._join(deadline, grace_s)
        except RankError:
            self.close()
            raise
        except WorkerError as error:
            raise self._cannot_start(error) from error
        except BaseException:
            self.close(_WHEN_INTERRUPTED_S)
            raise

    def close(self, grace_s: float = 0.0) -> None:
        """End all ranks, and what they have started. Harmless when called again."""
        if os.getpid() != self._owner_pid:
            return
        self._is_closed.set()
        try:
            with self._lock:
                self._end_ranks(grace_s)
        finally:
            self._run.end()
        if self._attendant is not None:
            self._attendant.join()

    def _end_ranks(self, grace_s: float = 0.0) -> None:
        calls, self._calls = self._calls, None
        _running.discard(self)
        if calls is None:
            return
        self._run.hide()
        try:
            calls.stop(grace_s)
        except BaseException:
            calls.stop(0.0)  # an interrupt: once more, without patience, so that nothing is left behind
            raise
        finally:
            self._run.note_lives(calls.lives)

    # -- starting --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        options = self._options
        context = multiprocessing.get_context(options.start_method)
        calls = self._calls = Calls(self._job(), context, options.backend)
        self._run.show_on(calls.board)
        _end_at_exit(self)
        try:
            calls.start()
            self._handles = list(calls.workers)
            self._register = Register([handle.pid for handle in self._handles])
            for rank, handle in enumerate(self._handles):
                handle.daemon = options.daemon
                calls.send(Call(fn=program.run, args=(rank,)), rank)
                calls.retire(rank)  # after this call it ends, and nobody takes its place
        except NotPicklable as error:
            self.close()
            raise _in_words_of_spawn(error) from error
        except WorkerError as error:
            raise self._cannot_start(error) from error
        except BaseException:
            self.close()
            raise

    def _job(self) -> Job:
        options = self._options
        calling = Calling(
            who="rank",
            front=SPAWN,
            threads=None,
            is_seeded=False,
            imports=(program.__name__,),
            is_rank=True,
            is_daemonic=options.daemon,
        )
        return job_of_calls(
            calling,
            options.nprocs,
            init=self._program,
            timeout_s=options.timeout_s,
            memory_limit=options.memory_limit,
            max_restarts=0,
        )

    def _cannot_start(self, error: WorkerError) -> RankInitError:
        """No rank could be started: told as it was, and caught as torch's."""
        incident = error.incident
        if incident is not None:
            self.incidents.add(incident)
            self._run.note(incident)
        self.close()
        pid = incident.pid if incident is not None else None
        told = RankInitError(str(error), error.worker_id or 0, pid or 0)
        told.incident = incident
        return told

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _join(self, deadline: float | None, grace_s: float) -> bool:
        if self._seen_by_attendant is not None:
            raise self._seen_by_attendant
        while not self._is_closed.is_set():  # by another thread
            left_s = _LOOK_S if deadline is None else min(_LOOK_S, max(0.0, deadline - time.monotonic()))
            self._look(left_s)
            if self._register.first_failed is not None:
                self._fail(grace_s)
            elif self._register.all_are_gone:
                self._count()
                self.close()
                return True
            elif deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _look(self, timeout_s: float) -> None:
        assert self._calls is not None
        self._register.take_in(self._calls.wait(timeout_s))
        self._run.tick(time.monotonic(), lambda: dict(enumerate(self.pids())))
        self._run.note_lives(self._calls.lives)

    def _look_for(self, seconds: float) -> None:
        """Until all ranks are gone, but no longer."""
        deadline = time.monotonic() + seconds
        while not self._register.all_are_gone and (left_s := deadline - time.monotonic()) > 0:
            self._look(left_s)

    def attend(self) -> None:
        """Nobody may join for long: have a thread look after the ranks where no supervisor does."""
        if self._calls is not None and self._calls.start_method == "portable":
            self._attendant = threading.Thread(target=self._attend, name="holdfast-ranks", daemon=True)
            self._attendant.start()

    def _attend(self) -> None:
        while not self._is_closed.wait(_ATTEND_EVERY_S):
            if not self._lock.acquire(blocking=False):
                continue  # somebody joins
            try:
                if self._calls is not None:
                    self._look(0.0)
            except WorkerError as error:
                self._seen_by_attendant = error
                return
            finally:
                self._lock.release()

    # -- failing ---------------------------------------------------------------------------------------------------

    def _fail(self, grace_s: float) -> None:
        """End the group, and start it again if that is allowed; else raise."""
        self._settle()
        self._end_the_rest(grace_s)
        first = self._register.first_failed
        assert first is not None
        again = self._restarts < self._options.max_restarts
        self._count()
        error = judging.error_of(self._register, first, self._options.start_method, self._done(again=again))
        assert error.incident is not None
        self.incidents.add(error.incident)
        self._run.note(error.incident)
        self._end_ranks()
        if not again:
            raise error
        self._run.counters.restarts += 1
        self._begin()

    @property
    def _restarts(self) -> int:
        return self._run.counters.restarts

    def _count(self) -> None:
        """A rank is one call: of all lives of the group, how many have ended, and how many of them failed."""
        self._run.counters.samples += sum(state.end is not End.NONE for state in self._register.states)
        self._run.counters.skipped += sum(state.has_failed for state in self._register.states)

    def _settle(self) -> None:
        """Wait a moment: what is seen first need not be what came first, and its last words are under way."""
        deadline = time.monotonic() + _SETTLES_S
        while not self._is_settled() and (left_s := deadline - time.monotonic()) > 0:
            self._look(left_s)

    def _is_settled(self) -> bool:
        register = self._register
        first: RankState | None = register.first_failed
        assert first is not None
        return register.all_are_gone or (not first.is_consequence and first.rank in register.losses)

    def _end_the_rest(self, grace_s: float) -> None:
        self._register.is_ending = True
        self._each_that_lives("terminate")
        self._look_for(grace_s)
        self._each_that_lives("kill")
        self._look_for(_GONE_AFTER_KILL_S)

    def _each_that_lives(self, act: str) -> None:
        for rank, handle in enumerate(self._handles):
            if rank not in self._register.losses:
                getattr(handle, act)()

    def _done(self, *, again: bool) -> str:
        others = "the other ranks were ended" if self._options.nprocs > 1 else "there was no other rank"
        if again:
            return f"{others}; the group was started again"
        if self._restarts:
            times = plural(self._restarts, "time")
            return f"{others}; the group had been restarted {times}, as often as max_restarts allows"
        return others


def _in_words_of_spawn(error: NotPicklable) -> NotPicklable:
    """The function and its arguments travel as a worker's init function, of which the user knows nothing."""
    path = error.path.removeprefix("worker_init_fn.")
    said = str(error).partition("\n")[0].replace(error.path, path, 1)
    return NotPicklable(f'{said}\n  try   open or create it in the function, or use start_method="fork"', path=path)


# -- the end of the interpreter ----------------------------------------------------------------------------------------

_running: set[RankGroup] = set()  # they go on without anybody who holds them, as torch's processes do


def _end_at_exit(group: RankGroup) -> None:
    if not _running:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
    _running.add(group)


def _end_all() -> None:
    """As multiprocessing does: daemons are ended, others are waited for."""
    for group in list(_running):
        if group._options.daemon or os.getpid() != group._owner_pid:
            group.close()
        with contextlib.suppress(Exception):
            group.join()
