"""The thread of a pool: it owns the workers, gives them calls, and tells the futures what came of them.

    any thread: add(task) ──► pending ──► a worker (`assignment.py`) ──► its future
                                 ▲                       │
                                 └── retried, or not begun ── lost, or taken back

When a worker dies, the status board says which call it was running: that one is charged with it, and no other. A call
that waits behind one that takes long is taken back. Every wait has an end (`workers/linux.py`); the thread ends by
itself when the pool is shut down, or is garbage, and nothing is left to be done. Runs in: main process.
"""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable

from holdfast.board_rows import Phase
from holdfast.errors import WorkerCrashed, WorkerError
from holdfast.incident import Incident, Incidents
from holdfast.pool import accounts, at_exit
from holdfast.pool.accounts import Accounts
from holdfast.pool.assignment import STUCK_AFTER_S, Assignment
from holdfast.pool.broken import BrokenPool, broken_by
from holdfast.pool.task import Task
from holdfast.workers import barriers
from holdfast.workers.backend import SupervisorLost, WorkerLost
from holdfast.workers.calls import Calls, Failed, Happening, Lost, Raised, Returned, TakenBack
from holdfast.workers.failures import Failure
from holdfast.workers.messages import Reason
from holdfast.workers.restarts import RestartWindow
from holdfast.workers.run import RunOfCalls

_GRACE_S = 3.0  # for workers that have nothing to do any more
_FOREVER_S = 1e9


class Dispatcher:
    """Started with the pool's first call. Nobody but its thread talks to the workers from then on."""

    def __init__(self, calls: Calls, num_workers: int, max_restarts: int, front: str, run: RunOfCalls) -> None:
        """`front`: how the user made the pool, as in `counted.py`."""
        self._calls = calls
        self._num_workers = num_workers
        self._accounts = Accounts(front, calls.start_method)
        self._record = run
        self._max_restarts = max_restarts
        self._pending: deque[Task] = deque()
        self._assignment: Assignment[Task] = Assignment(num_workers, can_take_back=barriers.are_possible())
        # Told once the replacement has its work; with the task that is over then, if one is.
        self._due: deque[tuple[Task | None, Callable[[], None]]] = deque()
        self._windows: dict[int, RestartWindow] = {}
        self._has_begun = False  # the thread: it has the workers from then on
        self._is_given_up = False
        self._is_asleep = False
        self._is_closing = False
        self._is_aborting = False
        self._cancels = False
        self.is_dropped_at_exit = False
        self._fatal: BaseException | None = None  # found out in the middle of what happened at once
        self._grace_s = _GRACE_S
        self.broken: BrokenPool | None = None
        self.incidents = Incidents()
        self._lock = threading.Lock()  # once it is broken nothing may be added
        self._thread = threading.Thread(target=self._run, name="holdfast-pool", daemon=True)
        self._has_ended = threading.Event()  # Python takes a thread whose `join()` is interrupted for one that has

    def start(self, function: object) -> None:
        """The workers in the thread that calls, as the standard library does: a fork has the caller's thread.

        `function`: the first that they will be asked for.
        """
        self._record.begin(function, self._num_workers, self._calls.start_method)
        self._record.show_on(self._calls.board)
        try:
            self._calls.start()
            at_exit.register(self)
            self._thread.start()
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """An interrupt, for instance. It may have come when the thread had the workers already."""
        with self._lock:
            has_begun, self._is_given_up = self._has_begun, True
        if has_begun:
            self.abort()
            self._has_ended.wait()
        else:
            self._stop(0.0)

    @property
    def restarts(self) -> int:
        return self._record.counters.restarts

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

    def abort(self) -> None:
        """End the workers whatever they do; what has begun fails, what has not is cancelled. Returns at once."""
        self._is_aborting = True
        self.close(cancels=True)

    def end_at_exit(self) -> None:
        if self.is_dropped_at_exit:
            self.abort()
        else:
            self.close()

    def join(self) -> None:
        if threading.current_thread() is not self._thread:
            self._has_ended.wait()
            self._thread.join()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._lock:
            if self._is_given_up:
                return
            self._has_begun = True
        try:
            while not self._is_over():
                self._turn()
        except WorkerError as error:
            if error.incident is not None:
                self._note(error.incident)
            self._break(error)
        except BaseException as error:  # a bug of ours, or a callback that leaves: nobody is to wait for ever
            self._break(error, "the thread of this pool")
            raise
        finally:
            self._tell_due()
            self._stop(self._grace_s)

    def _stop(self, grace_s: float) -> None:
        self._record.hide()
        try:
            self._calls.stop(grace_s)
        finally:
            self._record.note_lives(self._calls.lives)
            self._record.end()
            self._has_ended.set()

    def _turn(self) -> None:
        self._hand_out()
        self._tell_due()
        if self.broken is not None:
            return
        self._is_asleep = True
        happened = self._calls.wait(self._patience_s())
        self._is_asleep = False
        now_s = time.monotonic()
        self._record.tick(now_s, self._calls.pids)
        self._record.note_lives(self._calls.lives)
        while happened:
            self._settle(happened.pop(0), now_s)
        if self._fatal is not None:
            self._break(self._fatal)
        elif self._assignment.has_queues():
            self._take_back(now_s)

    def _patience_s(self) -> float:
        """Nobody rings who has seen us awake: what came since then must be seen here."""
        has_news = (self._pending and self._assignment.next_worker() is not None) or self._is_over()
        if has_news:
            return 0.0
        return STUCK_AFTER_S if self._assignment.has_queues() else _FOREVER_S

    def _tell_due(self) -> None:
        while self._due:
            task, tell = self._due.popleft()
            try:
                tell()
            except BaseException as error:  # of an object of the user's, or a bug of ours: nobody is to wait for ever
                if task is None or task.future.done():
                    raise
                self._fail(task, error.with_traceback(None))

    def _is_over(self) -> bool:
        if self.broken is not None:
            return True
        return self._is_closing and not self._assignment.under_way and not self._pending and not self._due

    def _hand_out(self) -> None:
        if self._cancels:
            self._cancel_pending()
        if self._is_aborting:
            self._grace_s = 0.0
            self._break(WorkerCrashed("the workers of this pool were ended on request"))
            return
        now_s = time.monotonic()
        while self._pending and (worker_id := self._assignment.next_worker()) is not None:
            task = self._pending.popleft()
            if not task.has_begun and not task.future.set_running_or_notify_cancel():
                continue
            task.has_begun = True
            try:
                self._calls.send(task, worker_id)
            except Exception as error:
                self._record.counters.samples += 1
                refusal = accounts.of_refusal(error)
                self._due.append((task, functools.partial(self._tell_transfer, task, refusal, "sending")))
            else:
                self._assignment.sent(worker_id, task, now_s)

    def _take_back(self, now_s: float) -> None:
        for worker_id in self._assignment.stuck(now_s):
            self._assignment.set_aside(worker_id)
            for task in reversed(self._calls.take_back(worker_id)):
                assert isinstance(task, Task)
                self._assignment.lost(worker_id, task)
                self._pending.appendleft(task)

    def _cancel_pending(self) -> None:
        with self._lock:
            waiting, self._pending = self._pending, deque()
        for task in waiting:
            if task.future.cancel():
                task.future.set_running_or_notify_cancel()
            else:
                self._pending.append(task)  # it has been sent before

    # -- what came of it -------------------------------------------------------------------------------------------

    def _settle(self, what: Happening, now_s: float) -> None:
        if isinstance(what, Lost):
            self._lose(what)
            return
        task = what.call
        assert isinstance(task, Task)
        if isinstance(what, TakenBack):
            self._assignment.lost(task.worker_id, task)
            self._pending.appendleft(task)
            return
        self._assignment.came_back(task.worker_id, task, now_s)
        self._record.counters.samples += 1
        if isinstance(what, Returned):
            task.future.set_result(what.value)
        elif isinstance(what, Failed):
            self._due.append((task, lambda: self._tell_transfer(task, what.error, "receiving what came of")))
        elif _is_of_start(what.failure):
            self._pending.appendleft(task)
            self._fatal = self._fatal or self._noted(*self._accounts.of_start(what.failure))
        else:
            self._due.append((task, lambda: self._tell(task, what)))

    def _tell(self, task: Task, raised: Raised) -> None:
        error, incident = self._accounts.of_exception(raised.failure, task)
        if incident is not None:
            self._record.note(incident)
        self._fail(task, error)

    def _tell_transfer(self, task: Task, error: BaseException, doing: str) -> None:
        incident = self._accounts.of_transfer(error, task, doing)
        if incident is not None:
            self._record.note(incident)
        self._fail(task, error.with_traceback(None))

    def _fail(self, task: Task, error: BaseException | None) -> None:
        self._record.counters.skipped += 1
        task.future.set_exception(error)

    def _lose(self, lost: Lost) -> None:
        loss = lost.loss
        for task in (*lost.running, *lost.waiting):
            assert isinstance(task, Task)
            self._assignment.lost(task.worker_id, task)
        for task in reversed(lost.waiting):
            assert isinstance(task, Task)
            self._pending.appendleft(task)
        if isinstance(loss, WorkerLost) and not loss.replaced:
            self._fatal = self._noted(*self._accounts.of_no_start(loss))
            return
        if not (isinstance(loss, WorkerLost) and loss.reason is Reason.LEFT):
            self._record.counters.restarts += 1
            self._charge(lost)

    def _charge(self, lost: Lost) -> None:
        """Each call that had begun with the loss; nobody, if none had."""
        loss = lost.loss
        for task in lost.running:
            assert isinstance(task, Task)
            task.deaths += 1
            is_over = task.deaths > task.max_retries
            if not is_over:
                self._pending.appendleft(task)
            self._due.append((task if is_over else None, self._judgement(loss, task)))
        if not lost.running:
            self._due.append((None, lambda: self._note(self._accounts.of_nobody(loss))))
            self._check_bounds(loss)

    def _judgement(self, loss: WorkerLost | SupervisorLost, task: Task) -> Callable[[], None]:
        is_last = task.deaths > task.max_retries

        def judge() -> None:
            incident, error = self._accounts.of_call(loss, task)
            self._note(incident)
            if is_last:
                self._record.counters.samples += 1
                self._fail(task, error)

        return judge

    def _check_bounds(self, loss: WorkerLost | SupervisorLost) -> None:
        """A worker that dies again and again while it has nothing to do has something in it that ends it."""
        if isinstance(loss, SupervisorLost) or loss.doing.phase is Phase.STARTING:
            return  # counted by who starts them
        if loss.exitcode == -signal.SIGINT:
            return  # the user's, who may interrupt a cell as often as he likes
        window = self._windows.setdefault(loss.worker_id, RestartWindow(self._max_restarts))
        if window.is_exceeded_by_death_at(time.monotonic()):
            self._fatal = self._noted(*self._accounts.of_too_many(loss, self._max_restarts))

    def _noted(self, incident: Incident, error: BaseException) -> BaseException:
        self._note(incident)
        return error

    def _note(self, incident: Incident) -> None:
        self.incidents.add(incident)
        self._record.note(incident)

    def _break(self, error: BaseException, who: str = "the initializer") -> None:
        """No worker can be had: everything that waits fails, and whatever is asked for later."""
        with self._lock:
            self.broken = broken_by(error, who)
            waiting, self._pending = self._pending, deque()
        for task in (*waiting, *self._calls.under_way()):
            assert isinstance(task, Task)
            if task.has_begun or task.future.set_running_or_notify_cancel():
                task.future.set_exception(broken_by(error, who))


def _is_of_start(failure: Failure) -> bool:
    """Whether it was raised before the worker could run anything: by the initializer, or on unpickling it."""
    return Phase(failure.phase) is Phase.STARTING
