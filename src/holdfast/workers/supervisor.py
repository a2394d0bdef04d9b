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
import gc
import multiprocessing
import multiprocessing.process
import os
import pickle
import select
import signal
import socket
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any

from holdfast.workers import channel, taint, worker
from holdfast.workers.board import Board
from holdfast.workers.channel import Channel
from holdfast.workers.job import CarriedJob, import_quietly
from holdfast.workers.messages import Exited, Retire, Started, Stop
from holdfast.workers.passing import PassedFd
from holdfast.workers.restarts import StartingDeaths

TICK_S = 0.5
_KILL_AFTER_TERM_S = 0.5


@dataclass(frozen=True)
class SupervisorSpec:
    """Everything a supervisor is told when it is started."""

    control: PassedFd
    main_pidfd: PassedFd
    board: Board
    names: tuple[str, ...]
    identities: tuple[tuple[int, ...], ...]
    start_method: str | None  # what `multiprocessing.get_start_method()` says in a worker; None: the platform's
    job: CarriedJob


@dataclass(slots=True)
class _Life:
    """One worker process from start to exit."""

    worker_id: int
    number: int
    process: Any
    pidfd: int


def main(spec: SupervisorSpec) -> None:
    """The target of a supervisor process. Leaves without the interpreter's exit: what it inherited is not its own."""
    supervisor, status = None, 0
    try:
        _become_independent()
        threads = taint.native_threads()
        import_quietly(spec.job.modules)  # once, so that each fork has them
        supervisor = Supervisor(spec, taint.find_taint(threads) if spec.job.was_sent else None)
        supervisor.run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the main process is gone
    except Exception:
        traceback.print_exc()  # a bug of ours: the main process starts another, and this says why
        status = 1
    finally:
        if supervisor is not None:
            supervisor.kill_all()
        os._exit(status)


_users_handlers: list[Any] = []


def _become_independent() -> None:
    """Shed what a fork of the training process brings along."""
    # SIGINT is meant for the main process; the terminal sends it to all. Workers get the user's handler back.
    _users_handlers.append(signal.signal(signal.SIGINT, signal.SIG_IGN))
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    gc.disable()  # a collection would touch, and so copy, every page inherited from the main process
    # Daemonic for the main process, which ends it at exit; not for itself, or it could have no children.
    multiprocessing.process.current_process()._config["daemon"] = False  # type: ignore[attr-defined]


class _WorkerProcess(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    """A proper multiprocessing process, named and numbered as if the main process had started it."""

    def __init__(self, name: str, identity: tuple[int, ...], args: tuple[Any, ...]) -> None:
        super().__init__(target=_run_worker, args=args, name=name, daemon=True)
        self._identity = identity


class _SpawnedWorkerProcess(multiprocessing.get_context("spawn").Process):  # type: ignore[misc]
    """The same as a new interpreter, for a supervisor that must not be forked."""

    def __init__(self, name: str, identity: tuple[int, ...], args: tuple[Any, ...]) -> None:
        super().__init__(target=_run_spawned_worker, args=args, name=name, daemon=True)
        self._identity = identity


def _run_spawned_worker(worker_id: int, job: CarriedJob, board: Board, sock: PassedFd, supervisor_pid: int) -> None:
    worker.main(worker_id, job, board, socket.socket(fileno=sock.fd), supervisor_pid)


def _run_worker(silence: warnings.catch_warnings[Any], others: list[int], *args: Any) -> None:
    silence.__exit__(None, None, None)
    for fd in others:
        os.close(fd)
    gc.enable()
    worker.main(*args, on_interrupt=_users_handlers[-1])


class Supervisor:
    """The workers of one iterator."""

    def __init__(self, spec: SupervisorSpec, tainted_by: str | None) -> None:
        self._spec = spec
        self._tainted_by = tainted_by
        self._control = Channel(socket.socket(fileno=spec.control.fd), blocking=True)
        self._board = spec.board
        self._lives: dict[int, _Life] = {}  # by pidfd
        self._retired: set[int] = set()
        self._starting_deaths = StartingDeaths()
        self._stopping: Stop | None = None
        self._poll = select.poll()
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(spec.main_pidfd.fd, select.POLLIN)

    def run(self) -> None:
        for worker_id in range(len(self._spec.names)):
            self._start(worker_id, life=self._board.doing(worker_id).life + 1)
        self._board.set_busy(False)
        while self._stopping is None:
            self._board.tick()
            for fd, _ in self._poll.poll(TICK_S * 1000):
                if fd == self._spec.main_pidfd.fd:
                    return
                if fd in self._lives:
                    self._take_orders()  # an order to retire a worker comes before its end: read it first
                    self._bury(self._lives[fd])
                elif not self._take_orders():
                    return
        self._wind_down(self._stopping.grace_s)

    # -- starting and burying --------------------------------------------------------------------------------------

    def _start(self, worker_id: int, life: int) -> None:
        ours, theirs = channel.pair()
        self._board.reset(worker_id, life)
        process = self._start_spawned(worker_id, theirs) if self._tainted_by else self._fork(worker_id, theirs, ours)
        theirs.close()
        pidfd = os.pidfd_open(process.pid)
        self._lives[pidfd] = _Life(worker_id, life, process, pidfd)
        self._poll.register(pidfd, select.POLLIN)
        self._tell(Started(worker_id, life, process.pid, self._tainted_by), [ours.fileno(), pidfd])
        ours.close()

    def _fork(self, worker_id: int, theirs: socket.socket, ours: socket.socket) -> Any:
        spec = self._spec
        others = [self._control.fileno(), spec.main_pidfd.fd, ours.fileno(), *self._lives]
        # Python warns of forks with threads. Ours are torch's, idle, and the warning would be about us.
        silence = warnings.catch_warnings(action="ignore", category=DeprecationWarning)
        args = (silence, others, worker_id, spec.job, self._board, theirs, os.getpid())
        process = _WorkerProcess(spec.names[worker_id], spec.identities[worker_id], args)
        process._start_method = spec.start_method
        with silence:
            process.start()
        return process

    def _start_spawned(self, worker_id: int, theirs: socket.socket) -> Any:
        spec = self._spec
        args = (worker_id, spec.job, self._board, PassedFd(theirs.fileno()), os.getpid())
        process = _SpawnedWorkerProcess(spec.names[worker_id], spec.identities[worker_id], args)
        process._start_method = spec.start_method
        self._board.set_busy(True)
        process.start()  # writes the job to a pipe that the new interpreter reads when it has imported the main script
        self._board.set_busy(False)
        return process

    def _bury(self, life: _Life) -> None:
        """Reap a worker, say how it ended, and start the next life unless there is to be none."""
        self._poll.unregister(life.pidfd)
        del self._lives[life.pidfd]
        os.close(life.pidfd)
        life.process.join()
        doing = self._board.doing(life.worker_id)
        replace = self._stopping is None and life.worker_id not in self._retired
        replace = replace and self._starting_deaths.is_worth_another(life.worker_id, doing.phase)
        pid, exitcode = life.process.pid, life.process.exitcode
        life.process.close()
        self._tell(Exited(life.worker_id, life.number, pid, exitcode, doing, replaced=replace))
        if replace:
            self._start(life.worker_id, life.number + 1)

    # -- talking to main -------------------------------------------------------------------------------------------

    def _tell(self, message: object, fds: list[int] | None = None) -> None:
        self._control.send(pickle.dumps(message), fds or ())

    def _take_orders(self) -> bool:
        """Read what main has said. False when it has closed its end."""
        while select.select([self._control], [], [], 0)[0]:
            received = self._control.receive()
            if received is None:
                return False
            order = pickle.loads(received[0])
            if isinstance(order, Retire):
                self._retired.add(order.worker_id)
            elif isinstance(order, Stop):
                self._stopping = order
        return True

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
            for fd, _ in self._poll.poll(min(left, TICK_S) * 1000):
                if fd == self._spec.main_pidfd.fd:
                    return
                if fd in self._lives:
                    self._bury(self._lives[fd])
                elif not self._take_orders():
                    self._poll.unregister(self._control)

    def _signal_all(self, number: int) -> None:
        for life in self._lives.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(life.pidfd, number)

    def kill_all(self) -> None:
        self._signal_all(signal.SIGKILL)
