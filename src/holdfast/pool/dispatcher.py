"""The thread of a pool: it owns the workers, gives them calls, and tells the futures what came of them.

    any thread: add(task) ──► pending ──► a worker that has nothing to do ──► its future
                                 ▲                       │
                                 └── retried, or not begun ── lost

A worker has one call at a time: a call never waits behind another while a worker is idle, and when a worker dies it is
known which call it cost. Every wait has an end (`workers/linux.py`); the thread ends by itself when the pool is shut
down, or is garbage, and nothing is left to be done. Runs in: main process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.errors import WorkerError
from holdfast.incident import Incident, Incidents
from holdfast.pool import accounts, at_exit
from holdfast.pool.broken import BrokenPool, broken_by
from holdfast.pool.task import Task
from holdfast.workers.backend import SupervisorLost, WorkerLost
from holdfast.workers.board import Phase
from holdfast.workers.calls import Calls, Failed, Happening, Lost, Raised, Returned
from holdfast.workers.failures import Failure, rebuild
from holdfast.workers.messages import Reason
from holdfast.workers.restarts import RestartWindow

_GRACE_S = 3.0  # for workers that have nothing to do any more
_FOREVER_S = 1e9


class Dispatcher:
    """Started with the pool's first call. Nobody but its thread talks to the workers from then on."""

    def __init__(self, calls: Calls, num_workers: int, max_restarts: int) -> None:
        self._calls = calls
        self._max_restarts = max_restarts
        self._pending: deque[Task] = deque()
        self._idle = list(reversed(range(num_workers)))  # the one that was busy last comes first: its caches are warm
        self._busy = 0
        self._due: deque[Callable[[], None]] = deque()  # told once the replacement has its work
        self._windows: dict[int, RestartWindow] = {}
        self._is_asleep = False
        self._is_closing = False
        self._cancels = False
        self.broken: BrokenPool | None = None
        self.incidents = Incidents()
        self.restarts = 0
        self._lock = threading.Lock()  # once it is broken nothing may be added
        self._thread = threading.Thread(target=self._run, name="holdfast-pool", daemon=True)

    def start(self) -> None:
        """The workers in the thread that calls, as the standard library does: a fork has the caller's thread."""
        self._calls.start()
        at_exit.register(self)
        self._thread.start()

    # -- for any thread --------------------------------------------------------------------------------------------

    def add(self, task: Task) -> None:
        with self._lock:
            if self.broken is not None:
                raise broken_by(self.broken)
            self._pending.append(task)
        if self._is_asleep:
            self._calls.bell.ring()

    def close(self, *, cancels: bool = False) -> None:
        """End when all is done; with `cancels`, what has not begun is not to be done. Returns at once."""
        self._cancels |= cancels
        self._is_closing = True
        self._calls.bell.ring()

    def join(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @property
    def pids(self) -> list[int]:
        """Of the workers that are there."""
        return [worker.pid for worker in self._calls.workers if worker.pid is not None]

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        except WorkerError as error:
            self._break(error)
        except BaseException as error:  # a bug of ours: nobody is to wait for ever
            self._break(error)
            raise
        finally:
            self._tell_due()
            self._calls.stop(_GRACE_S)

    def _turn(self) -> None:
        self._hand_out()
        self._tell_due()
        self._is_asleep = True
        has_news = bool(self._pending and self._idle) or (self._is_closing and self._is_over())
        happened = self._calls.wait(0.0 if has_news else _FOREVER_S)
        self._is_asleep = False
        while happened:
            self._settle(happened.pop(0))

    def _tell_due(self) -> None:
        while self._due:
            self._due.popleft()()

    def _is_over(self) -> bool:
        if self.broken is not None:
            return True
        return self._is_closing and not self._busy and not self._pending and not self._due

    def _hand_out(self) -> None:
        if self._cancels:
            self._cancel_pending()
        while self._idle and self._pending:
            task = self._pending.popleft()
            if not task.has_begun and not task.future.set_running_or_notify_cancel():
                continue
            task.has_begun = True
            try:
                self._calls.send(task, self._idle[-1])
            except Exception as error:
                _fail(task, error)
                continue
            self._idle.pop()
            self._busy += 1

    def _cancel_pending(self) -> None:
        waiting, self._pending = self._pending, deque()
        for task in waiting:
            if task.future.cancel():
                task.future.set_running_or_notify_cancel()
            else:
                self._pending.append(task)  # it has been sent before

    # -- what came of it -------------------------------------------------------------------------------------------

    def _settle(self, what: Happening) -> None:
        if isinstance(what, Lost):
            self._lose(what)
            return
        task = what.call
        assert isinstance(task, Task)
        self._busy -= 1
        self._idle.append(task.worker_id)
        if isinstance(what, Returned):
            task.future.set_result(what.value)
        elif isinstance(what, Failed):
            _fail(task, what.error)
        elif _is_of_start(what.failure):
            self._pending.appendleft(task)
            self._break(rebuild(what.failure))
        else:
            self._due.append(lambda: self._tell(task, what))

    def _tell(self, task: Task, raised: Raised) -> None:
        _fail(task, accounts.of_exception(raised.failure, task, self._calls.start_method))

    def _lose(self, lost: Lost) -> None:
        loss = lost.loss
        for task in (*lost.running, *lost.waiting):
            self._busy -= 1
            self._idle.append(task.worker_id)
        for task in reversed(lost.waiting):
            assert isinstance(task, Task)
            self._pending.appendleft(task)
        if isinstance(loss, WorkerLost) and not loss.replaced:
            self._break(self._noted(*accounts.of_no_start(loss)))
            return
        if not (isinstance(loss, WorkerLost) and loss.reason is Reason.LEFT):
            self.restarts += 1
            self._charge(lost)

    def _charge(self, lost: Lost) -> None:
        """Each call that had begun with the loss; nobody, if none had."""
        loss = lost.loss
        for task in lost.running:
            assert isinstance(task, Task)
            task.deaths += 1
            if task.deaths <= task.max_retries:
                self._pending.appendleft(task)
            self._due.append(self._judgement(loss, task))
        if not lost.running:
            self._due.append(lambda: self._note(accounts.of_nobody(loss)))
            self._check_bounds(loss)

    def _judgement(self, loss: WorkerLost | SupervisorLost, task: Task) -> Callable[[], None]:
        is_last = task.deaths > task.max_retries

        def judge() -> None:
            incident, error = accounts.of_call(loss, task)
            self._note(incident)
            if is_last:
                assert error is not None
                _fail(task, error)

        return judge

    def _check_bounds(self, loss: WorkerLost | SupervisorLost) -> None:
        """A worker that dies again and again while it has nothing to do has something in it that ends it."""
        if isinstance(loss, SupervisorLost) or loss.doing.phase is Phase.STARTING:
            return  # counted by who starts them
        window = self._windows.setdefault(loss.worker_id, RestartWindow(self._max_restarts))
        if window.is_exceeded_by_death_at(time.monotonic()):
            self._break(self._noted(*accounts.of_too_many(loss, self._max_restarts)))

    def _noted(self, incident: Incident, error: WorkerError) -> WorkerError:
        self._note(incident)
        return error

    def _note(self, incident: Incident) -> None:
        self.incidents.add(incident)

    def _break(self, error: BaseException) -> None:
        """No worker can be had: everything that waits fails, and whatever is asked for later."""
        with self._lock:
            self.broken = broken_by(error)
            waiting, self._pending = self._pending, deque()
        for task in (*waiting, *self._calls.under_way()):
            assert isinstance(task, Task)
            if task.has_begun or task.future.set_running_or_notify_cancel():
                _fail(task, broken_by(error))


def _is_of_start(failure: Failure) -> bool:
    """Whether it was raised before the worker could run anything: by the initializer, or on unpickling it."""
    return Phase(failure.phase) is Phase.STARTING


def _fail(task: Task, error: BaseException) -> None:
    """The future has the error, and this frame must not be in it: it would keep the pool alive."""
    future: Any = task.future
    future.set_exception(error)
