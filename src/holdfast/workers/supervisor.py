"""The supervisor: forks the workers, reaps them, replaces them, and goes when the main process goes.

    main ◄──control socket──► supervisor ──fork──► workers
                                  │ pidfd of main: its death is noticed whatever thread or descriptor outlives it
                                  └ tick on the status board: its own health, for main to see

It is small and single-threaded, so that replacing a worker is the fork of a small single-threaded process, never of the
training process in mid-step; and it is the workers' parent, so it has their real exit status. It runs none of the
user's code, and knows nothing of samples or their fate.

Runs in: supervisor process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import multiprocessing.process
import os
import pickle
import select
import signal
import socket
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from holdfast.board_rows import Phase
from holdfast.diagnosis import collect, refusals
from holdfast.memory import readings
from holdfast.workers import orphans, taint
from holdfast.workers.board import Board, Doing, WorkerMemory
from holdfast.workers.channel import Channel, is_readable
from holdfast.workers.hang_stacks import LOOK_EVERY_S
from holdfast.workers.job import CarriedJob, import_quietly
from holdfast.workers.launching import Forking, Identity, Launcher, Newborn, Spawning
from holdfast.workers.messages import BringBack, Exited, Reason, Refused, Retire, Started, Stop, reason_of_end
from holdfast.workers.passing import PassedFd
from holdfast.workers.restarts import starts_again
from holdfast.workers.start_methods import ignore_interrupts
from holdfast.workers.threads import limit as limit_threads
from holdfast.workers.traces import Relay, Surroundings, Traces
from holdfast.workers.watching import BudgetWatch, Deadline, EndWatch, MemoryCap, StopWatch, tick_s, tick_s_of

_KILL_AFTER_TERM_S = 0.5


@dataclass(frozen=True)
class SupervisorSpec:
    """Everything a supervisor is told when it is started."""

    control: PassedFd
    main_pidfd: PassedFd
    board: Board
    workers: tuple[Identity, ...]
    started_by: str  # the start method of this process
    start_method: str | None  # what `multiprocessing.get_start_method()` says in a worker; None: the platform's
    sample_timeout_s: float | None
    stopped_grace_s: float  # how long a worker may be stopped by a signal
    memory_limit_bytes: int | None
    memory_budget_bytes: int | None
    max_restarts: int
    has_been_ready: bool
    limits_threads: bool  # of native libraries, which workers that are forks of this process inherit
    adopts: bool  # what workers start and leave behind is ended with them
    who: str  # what a worker is called in what it says on stderr
    job: CarriedJob


@dataclass(slots=True)
class _Life:
    """One worker process from start to exit."""

    worker_id: int
    number: int
    process: Any
    pidfd: int
    traces: Traces
    deadline: Deadline
    stop_watch: StopWatch
    cap: MemoryCap
    end_watch: EndWatch = dataclasses.field(default_factory=EndWatch)
    reason: Reason = Reason.EXITED
    ended_at: Doing | None = None  # by us; by now it may be elsewhere, and another sample would be blamed
    is_asked: bool = False  # for its stacks: it is ended when they are there

    def look(self, doing: Doing, memory: WorkerMemory, elapsed_s: float) -> None:
        """End a worker that makes no progress, as soon as its stacks are taken, or that takes too much memory."""
        if self.is_asked:
            self.is_asked = not self.traces.has_stacks(self.pidfd)
        elif self.reason is not Reason.EXITED:
            return  # its end is under way
        elif self.stop_watch.is_over(elapsed_s):
            self.reason = Reason.STOPPED
        elif not self.stop_watch.is_stopped and self.deadline.is_over(doing, elapsed_s):  # a stop is nobody's hang
            self.reason, self.ended_at = Reason.HUNG, doing
            self.is_asked = not self.traces.has_stacks(self.pidfd)
        elif self.cap.is_over(memory, doing):
            self.reason, self.ended_at = Reason.OVER_LIMIT, doing
        elif self.end_watch.is_over(doing, elapsed_s):
            self.reason = Reason.LEFT
        else:
            return
        if not self.is_asked:
            self._kill()

    def end_for_budget(self, doing: Doing) -> None:
        if self.reason is Reason.EXITED:
            self.reason, self.ended_at = Reason.OVER_BUDGET, doing
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)


class NoProcess(Exception):
    """The kernel refused a new worker process."""


def main(spec: SupervisorSpec) -> None:
    """The target of a supervisor process. Leaves without the interpreter's exit: what it inherited is not its own."""
    supervisor, status = None, 0
    try:
        collects = spec.job.was_sent or gc.isenabled()  # (a new interpreter imports with it off: `ImportersName`)
        on_interrupt = _become_independent()
        threads = taint.native_threads()
        import_quietly(spec.job.modules, spec.board.set_importing)
        tainted_by = taint.find_taint(threads) if spec.job.was_sent else None
        if spec.limits_threads:
            limit_threads()  # later: a BLAS may start its threads to hear of it, and ends them at each fork
        if spec.adopts:
            orphans.adopt()
        supervisor = Supervisor(spec, tainted_by, on_interrupt, collects=collects)
        supervisor.run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the main process is gone
    except NoProcess:
        status = 1  # the main process has been told
    except Exception:
        traceback.print_exc()  # a bug of ours: the main process starts another, and this says why
        status = 1
    finally:
        _leave(supervisor, status)


def _leave(supervisor: Supervisor | None, status: int) -> NoReturn:
    try:
        if supervisor is not None:
            supervisor.kill_all()
            if supervisor.adopts:
                orphans.end_all()
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def _become_independent() -> Any:
    """Shed what a fork of the training process brings along. Returns its handler of SIGINT, for the workers."""
    on_interrupt = ignore_interrupts()  # meant for the main process; the terminal sends it to all
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it: meant for all of a program
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    gc.disable()  # a collection would touch, and so copy, every page inherited from the main process
    # Daemonic for the main process, which ends it at exit; not for itself, or it could have no children.
    multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    return on_interrupt


class Supervisor:
    """The workers of one iterator."""

    def __init__(self, spec: SupervisorSpec, tainted_by: str | None, on_interrupt: Any, *, collects: bool) -> None:
        """`collects`: whether the garbage collector is on in the workers that are forked."""
        self._spec = spec
        self.adopts = spec.adopts
        self._tainted_by = tainted_by
        self._launcher: Launcher = (
            Spawning(spec.job, spec.board, spec.start_method)
            if tainted_by
            else Forking(spec.job, spec.board, spec.start_method, on_interrupt, collects=collects)
        )
        self._control = Channel(socket.socket(fileno=spec.control.fd), blocking=True)
        self._board = spec.board
        self._lives: dict[int, _Life] = {}  # by pidfd
        self._relays: dict[int, Relay] = {}  # by descriptor: the workers' stderr
        self._surroundings = Surroundings(
            start_method=spec.started_by,
            forks_itself=not tainted_by,
            sample_timeout_s=spec.sample_timeout_s,
            memory_limit_bytes=spec.memory_limit_bytes,
            memory_budget_bytes=spec.memory_budget_bytes,
            inherited_files=collect.open_files() if spec.started_by == "fork" else (),
        )
        self._retired: set[int] = set()
        self._start_deaths: Counter[int] = Counter()  # of each worker, in a row, before it was ready
        self._has_been_ready = spec.has_been_ready
        self._has_begun = False  # all workers have been started
        self._stopping: Stop | None = None
        watches_memory = spec.memory_limit_bytes is not None or spec.memory_budget_bytes is not None
        self._slowest_tick_s = self._tick_s = tick_s(spec.sample_timeout_s, watches_memory=watches_memory)
        self._budget_watch = BudgetWatch(spec.memory_budget_bytes)
        self._last_look = time.monotonic()
        self._poll = select.poll()
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(spec.main_pidfd.fd, select.POLLIN)

    def run(self) -> None:
        for worker_id in range(len(self._spec.workers)):
            self._start(worker_id, life=self._board.doing(worker_id).life + 1)
        self._has_begun = True
        self._board.set_busy(False)
        while self._stopping is None:
            self._tick()
            for fd, _ in self._poll.poll(self._next_look_s() * 1000):
                if fd == self._spec.main_pidfd.fd:
                    return
                if fd in self._lives:
                    self._take_orders()  # an order to retire a worker comes before its end: read it first
                    self._bury(self._lives[fd])
                elif fd in self._relays:
                    self._relay(fd)
                elif not self._take_orders():
                    return
        self._wind_down(self._stopping.grace_s)

    def _tick(self) -> None:
        """Show that we are well, and look after the workers."""
        self._board.tick()
        now = time.monotonic()
        elapsed_s, self._last_look = min(now - self._last_look, self._tick_s), now
        self._tick_s = self._slowest_tick_s
        for life in self._lives.values():
            doing = self._board.doing(life.worker_id)
            self._tick_s = min(self._tick_s, tick_s_of(doing))
            self._has_been_ready |= doing.phase is not Phase.STARTING
            life.look(doing, self._board.memory(life.worker_id), elapsed_s)
            life.traces.watch(doing, now)
            self._listen_to(life.traces.stderr)
        self._watch_budget()
        if not self.adopts and self._all_are_ready():  # not before: the first batch is waited for
            self._launcher.warm_up()

    def _watch_budget(self) -> None:
        if not self._budget_watch.has_budget:
            return
        lives = {life.worker_id: life for life in self._lives.values()}
        has = {
            worker_id: life.cap.anonymous_bytes or readings.anonymous_bytes(life.process.pid)
            for worker_id, life in lives.items()
        }
        too_many = self._budget_watch.find_one_too_many(self._board, has)
        if too_many is not None:
            lives[too_many].end_for_budget(self._board.doing(too_many))

    def _next_look_s(self) -> float:
        return min(self._tick_s, LOOK_EVERY_S) if any(life.is_asked for life in self._lives.values()) else self._tick_s

    # -- starting and burying --------------------------------------------------------------------------------------

    def _start(self, worker_id: int, life: int) -> None:
        born = self._launch(worker_id, life)
        self._tell(*self._announcement(worker_id, life, born))
        born.socket.close()

    def _launch(self, worker_id: int, life: int, of_the_last: Iterable[int] = ()) -> Newborn:
        self._board.reset(worker_id, life, self._launcher.born_bytes())
        try:
            return self._launcher.launch(self._spec.workers[worker_id], [*self._own_descriptors(), *of_the_last])
        except OSError as error:
            self._end_if_refused(error)
            raise

    def _end_if_refused(self, error: OSError) -> None:
        """If the kernel has no room for a process, tell the main process, which decides what to do, and end."""
        if error.errno in refusals.NUMBERS:
            self._tell(Refused(error.errno, refusals.reached(error.errno), self._has_begun))
            raise NoProcess from error

    def _announcement(self, worker_id: int, life: int, born: Newborn) -> tuple[Started, list[int]]:
        """Watch a worker from here on. Returns what main is to be told of it, and given."""
        process, traces = born.process, born.traces
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError as error:
            process.kill()
            self._end_if_refused(error)
            raise
        deadline, cap = Deadline(self._spec.sample_timeout_s), MemoryCap(process.pid, self._spec.memory_limit_bytes)
        stop_watch = StopWatch(pidfd, self._spec.stopped_grace_s)
        self._lives[pidfd] = _Life(worker_id, life, process, pidfd, traces, deadline, stop_watch, cap)
        self._poll.register(pidfd, select.POLLIN)
        traces.stderr.name(f"{self._spec.who} {worker_id}")
        self._listen_to(traces.stderr)
        return Started(worker_id, life, process.pid, self._tainted_by), [born.socket.fileno(), pidfd]

    def _own_descriptors(self) -> list[int]:
        """What a worker must not keep open."""
        traces = [fd for life in self._lives.values() for fd in life.traces.descriptors]
        return [self._control.fileno(), self._spec.main_pidfd.fd, *self._lives, *traces]

    def _all_are_ready(self) -> bool:
        return all(self._board.doing(life.worker_id).phase is not Phase.STARTING for life in self._lives.values())

    def _bury(self, life: _Life) -> None:
        """Reap a worker, say how it ended, and start the next life unless there is to be none."""
        self._poll.unregister(life.pidfd)
        del self._lives[life.pidfd]
        os.close(life.pidfd)
        life.process.join()
        doing = life.ended_at or self._board.doing(life.worker_id)
        replace = self._stopping is None and life.worker_id not in self._retired and self._is_worth_it(life, doing)
        pid, exitcode = life.process.pid, life.process.exitcode
        life.process.close()
        # The next one first: it starts while we look into what became of this one.
        next_life = life.number + 1
        born = self._launch(life.worker_id, next_life, life.traces.descriptors) if replace else None
        self._listen_no_more(life.traces.stderr)
        life.reason = reason_of_end(life.reason, doing, exitcode)
        evidence = life.traces.evidence(life.reason, exitcode, doing, self._surroundings)
        had_bytes = self._budget_watch.had_bytes(life.worker_id)
        used_bytes = had_bytes if life.reason is Reason.OVER_BUDGET else life.cap.used_bytes or had_bytes
        evidence = dataclasses.replace(evidence, memory_used_bytes=used_bytes, memory_kept_bytes=life.cap.kept_bytes)
        exited = Exited(life.worker_id, life.number, pid, exitcode, doing, replace, life.reason, evidence)
        if born is None:
            self._tell(exited)
            return
        successor, fds = self._announcement(life.worker_id, next_life, born)
        self._tell(dataclasses.replace(exited, successor=successor), fds)
        born.socket.close()

    def _is_worth_it(self, life: _Life, doing: Doing) -> bool:
        if doing.phase is not Phase.STARTING:
            self._start_deaths[life.worker_id] = 0
            self._has_been_ready = True
            return True
        self._start_deaths[life.worker_id] += 1
        return starts_again(
            life.process.exitcode,
            self._start_deaths[life.worker_id],
            self._spec.max_restarts,
            has_been_ready=self._has_been_ready,
            is_for_memory=life.traces.saw_memory_kill(),
        )

    # -- the workers' stderr ---------------------------------------------------------------------------------------

    def _listen_to(self, relay: Relay) -> None:
        """As long as it has something to say, and we can pass it on."""
        if relay.wants_more and relay.fd not in self._relays:
            self._relays[relay.fd] = relay
            self._poll.register(relay.fd, select.POLLIN)

    def _listen_no_more(self, relay: Relay) -> None:
        if self._relays.pop(relay.fd, None) is not None:
            self._poll.unregister(relay.fd)

    def _relay(self, fd: int) -> None:
        relay = self._relays[fd]
        relay.take_in()
        if not relay.wants_more:
            self._listen_no_more(relay)

    # -- talking to main -------------------------------------------------------------------------------------------

    def _tell(self, message: object, fds: list[int] | None = None) -> None:
        self._control.send_whole(pickle.dumps(message), fds or ())

    def _take_orders(self) -> bool:
        """Read what main has said. False when it has closed its end."""
        while is_readable(self._control):
            received = self._control.receive()
            if received is None:
                return False
            order = pickle.loads(received[0])
            if isinstance(order, Retire):
                self._retired.add(order.worker_id)
            elif isinstance(order, BringBack):
                self._bring_back(order.worker_id)
            elif isinstance(order, Stop):
                self._stopping = order
        return True

    def _bring_back(self, worker_id: int) -> None:
        self._retired.discard(worker_id)
        if all(life.worker_id != worker_id for life in self._lives.values()):
            self._start(worker_id, life=self._board.doing(worker_id).life + 1)

    # -- ending ----------------------------------------------------------------------------------------------------

    def _wind_down(self, grace_s: float) -> None:
        """Let workers end by themselves for a while, then make them."""
        self._wait_for_exits(grace_s)
        self._signal_all(signal.SIGTERM)
        self._wait_for_exits(_KILL_AFTER_TERM_S if self._lives else 0)
        self.kill_all()

    def _wait_for_exits(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._lives and (left := deadline - time.monotonic()) > 0:
            self._board.tick()
            for fd, _ in self._poll.poll(min(left, self._tick_s) * 1000):
                if fd == self._spec.main_pidfd.fd:
                    return
                if fd in self._lives:
                    self._bury(self._lives[fd])
                elif fd in self._relays:
                    self._relay(fd)
                elif not self._take_orders():
                    self._poll.unregister(self._control)

    def _signal_all(self, number: int) -> None:
        for life in self._lives.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(life.pidfd, number)

    def kill_all(self) -> None:
        """End what is left, without a look at how. Harmless when called again."""
        self._signal_all(signal.SIGKILL)
        self._launcher.close()
        while self._lives:
            self._lives.popitem()[1].traces.discard()
