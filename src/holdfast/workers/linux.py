"""The backend for Linux: a supervisor process, forked workers, sockets and memfds.

    Crew ──control socket──► supervisor ──fork──► worker k
      └───────private socket per worker life (units out, headers back)──┘

What must hold:
- Every wait has an end: a poll wakes for a message, a death, or a second of silence, and then the supervisor's tick is
  looked at. A supervisor that is dead or silent is killed, what its workers had finished is kept, and another starts.
- What a worker finished before it died is good, because the main process owns the slots: its socket is drained before
  its death is reported.
- No send blocks.

Runs in: main process, in the thread that calls `next()`; of a pool, in a thread of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import pickle
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch.multiprocessing

from holdfast import counted
from holdfast.diagnosis import inquiry, refusals, signs
from holdfast.diagnosis.collect import MemoryWatch
from holdfast.diagnosis.evidence import Ending, Evidence
from holdfast.errors import WorkerError, WorkerInitError
from holdfast.memory import readings
from holdfast.transport import main_module
from holdfast.transport.segments import discard
from holdfast.transport.slots import PooledSegment, Slot, SlotPool
from holdfast.workers import (
    channel,
    giving_up,
    messages,
    no_start,
    restarts,
    start_methods,
    supervisor,
    threads,
    watching,
)
from holdfast.workers.backend import Event, SupervisorLost, UnitDone, WorkerHandle, WorkerLost, is_lost_again
from holdfast.workers.bell import Bell
from holdfast.workers.board import Board, WorkerMemory
from holdfast.workers.channel import Channel
from holdfast.workers.descendants import Descendants
from holdfast.workers.handles import LinuxWorkerHandle
from holdfast.workers.job import CarriedJob, Job
from holdfast.workers.launching import Identity, read_sources
from holdfast.workers.lives import Lives
from holdfast.workers.messages import BringBack, Epoch, Exited, Refused, Retire, Started, Stop, Unit
from holdfast.workers.passing import PassedFd

_POLL_S = 1.0
_SILENT_AFTER_S = 5.0  # a supervisor that runs, and does not tick for so long while we do wait, is lost
_SILENT_WHEN_BUSY_S = 300.0
_MAX_SUPERVISOR_RESTARTS = 3  # without a single finished unit in between
_STOP_MARGIN_S = 1.0


class _Link:
    """Our end of one worker life."""

    __slots__ = ("channel", "knows", "life", "worker_id")

    def __init__(self, worker_id: int, life: int, sock: socket.socket) -> None:
        self.worker_id = worker_id
        self.life = life
        self.channel = Channel(sock, blocking=False)
        self.knows: set[int] = set()  # numbers of the segments it has mapped


class _Order(NamedTuple):
    """A packed unit, and the segments that the worker must know before it reads it."""

    packed: bytes
    segments: tuple[PooledSegment, ...]


class Crew:
    """Main's side of one supervisor and its workers."""

    def __init__(self, job: Job, pool: SlotPool, context: Any) -> None:
        self._context = context if context is not None else torch.multiprocessing
        self._job = job
        self._carried = CarriedJob(job)
        self._pool = pool
        self._workers = [LinuxWorkerHandle(self._context) for _ in range(job.num_workers)]
        counted.employ(job.front or counted.LOADER, self._workers)
        self._board = Board.create(job.num_workers)
        self._process: Any = None
        self._pidfd = -1
        self._memory: MemoryWatch | None = None  # of the supervisor
        self._descendants = Descendants() if job.has_ranks else None  # which a supervisor that is killed cannot end
        self._control: Channel | None = None
        self._control_open = False
        self._is_forked = False
        self._links: dict[int, _Link] = {}  # by worker id
        self._by_fd: dict[int, _Link] = {}
        self._waiting: dict[int, list[_Order]] = {}  # for workers that are not there yet
        self._unwelcome: set[int] = set()  # those that were retired before they were there
        self._mail: deque[tuple[Any, list[int]]] = deque()  # from the supervisor, not yet acted on
        self._backlog: deque[Event] = deque()  # happened, not yet dealt with by the iterator
        self._unsettled: set[int] = set()  # workers that were lost, of which the iterator may not know yet
        self._poll = select.poll()
        self._bell: Bell | None = None
        self._ticks_seen = -1
        self._silent_s = self._stopped_s = 0.0
        self._restarts_in_a_row = 0
        self._refused: Refused | None = None  # what the supervisor said last
        self._has_been_ready = job.has_been_ready  # a worker of this loader: what they start with is good
        self.new_interpreters: str | None = None
        self.lives = Lives()
        self.start_method = start_methods.name_of(self._context)

    @property
    def workers(self) -> Sequence[WorkerHandle]:
        """The handles, once every worker has been started: their pids are known then, as they are with torch."""
        while self._process is not None and any(worker.pid is None for worker in self._workers):
            self._wait(_POLL_S)
        return self._workers

    @property
    def board(self) -> Board:
        return self._board

    # -- starting --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        try:
            self._start_supervisor()
        except OSError as error:
            if error.errno not in refusals.NUMBERS:
                raise  # by the user's own code, while it was pickled
            raise giving_up.cannot_start(error, "no worker was started", front=self._job.front) from error

    def _start_supervisor(self) -> None:
        no_start.leave_if_unguarded()
        start_methods.prepare(self.start_method)
        self._is_forked = self.start_method == "fork"
        if self._is_forked:
            read_sources()  # here, and not in the supervisor of each epoch
            if self._job.limits_threads:
                threads.look()
        self._board.set_busy(not self._is_forked)
        self._board.set_importing(0)
        self._board.forget_memory()
        ours, theirs = channel.pair()
        self._control = Channel(ours, blocking=False)
        try:
            main_pidfd = os.pidfd_open(os.getpid())
        except OSError:
            theirs.close()
            raise
        spec = supervisor.SupervisorSpec(
            control=PassedFd(theirs.fileno()),
            main_pidfd=PassedFd(main_pidfd),
            board=self._board,
            workers=tuple(Identity(k, worker.name, worker.identity) for k, worker in enumerate(self._workers)),
            started_by=self.start_method,
            start_method=self._workers[0].start_method,
            sample_timeout_s=self._job.sample_timeout_s,
            stopped_grace_s=watching.STOPPED_GRACE_S,
            memory_limit_bytes=self._job.care.memory_limit,
            memory_budget_bytes=self._job.memory_budget,
            max_restarts=self._job.max_restarts,
            has_been_ready=self._has_been_ready,
            limits_threads=self._job.limits_threads,
            adopts=self._job.has_ranks,
            who=self._job.who,
            job=self._carried,
        )
        with start_methods.unnumbered():
            name = start_methods.ImportersName(no_start.SUPERVISOR)
            self._process = self._context.Process(target=supervisor.main, args=(spec,), name=name, daemon=True)
        try:
            with main_module.startable(), start_methods.interrupts_held_back():
                self._process.start()
                self._take_note(self._control)
        except BaseException:
            if self._pidfd < 0:  # else it is there, and an interrupt was held back: who stops us ends it
                self._process = None
                self._control.close()
                self._control = None
            raise
        finally:
            theirs.close()
            os.close(main_pidfd)

    def _take_note(self, control: Channel) -> None:
        """Of a supervisor that has been started."""
        # Ours to end, not multiprocessing's: its exit handler would signal it from a forked child of this process too.
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]
        self._memory = MemoryWatch(self._process.pid)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._control_open = True
        self._ticks_seen, self._silent_s, self._stopped_s = -1, 0.0, 0.0

    # -- sending ---------------------------------------------------------------------------------------------------

    def submit(self, worker_id: int, unit: Unit, slots: tuple[Slot, ...]) -> None:
        self._order(worker_id, _Order(messages.pack_unit(unit), tuple(slot.segment for slot in slots)))

    def restore(self, worker_id: int, progress: bytes, slot: Slot | None) -> None:
        if is_lost_again(worker_id, self._backlog):
            return
        self._unsettled.discard(worker_id)
        if slot is None:
            self._order(worker_id, _Order(messages.pack_restore(progress), ()))
        else:
            self._order(worker_id, _Order(messages.pack_restore(slot.ref), (slot.segment,)))

    def resume(self, epoch: Epoch, worker_id: int | None = None) -> None:
        order = _Order(messages.pack_resume(epoch), ())
        for each in range(len(self._workers)) if worker_id is None else (worker_id,):
            self._order(each, order)

    def _order(self, worker_id: int, order: _Order) -> None:
        """Send an order to a worker, now or, in turn, when it is there."""
        if worker_id in self._unsettled:
            return  # it will be told again what it had been told, and this with it
        link = self._links.get(worker_id)
        if link is None:
            self._waiting.setdefault(worker_id, []).append(order)
        else:
            self._send(link, order)

    def _send(self, link: _Link, order: _Order) -> None:
        if self._pool.dropped_segments:
            self._forget_dropped()
        try:
            for segment in order.segments:
                if segment.number not in link.knows:
                    if segment.fd < 0:
                        return  # the unit was given up while it waited, and its slots are gone
                    link.knows.add(segment.number)
                    link.channel.send(messages.pack_segment(segment.number, segment.nbytes), [segment.fd])
            link.channel.send(order.packed)
        except ConnectionError:
            return  # it died; the supervisor will say so, and the unit is lost with it
        if link.channel.has_unsent:
            self._watch(link)

    def _forget_dropped(self) -> None:
        if not self._pool.dropped_segments:
            return
        numbers, self._pool.dropped_segments = self._pool.dropped_segments, []
        for link in self._links.values():
            known = link.knows.intersection(numbers)
            if known:
                link.knows -= known
                with contextlib.suppress(OSError):
                    link.channel.send(messages.pack_forget(sorted(known)))

    def retire(self, worker_id: int) -> None:
        self._tell(Retire(worker_id))
        link = self._links.get(worker_id)
        if link is not None:
            link.channel.end_sending()
        else:
            self._unwelcome.add(worker_id)

    def bring_back(self, worker_id: int) -> None:
        self._unwelcome.discard(worker_id)
        self._tell(BringBack(worker_id))

    def take_back(self, worker_id: int, last_unit: int) -> int:
        if worker_id not in self._links:
            return last_unit  # its row may not be its own yet: what is written there now would be wiped out
        return self._board.take_back(worker_id, last_unit)

    def memory(self, worker_id: int) -> WorkerMemory:
        return self._board.memory(worker_id)

    def used_bytes(self, worker_id: int) -> int:
        pid = self._workers[worker_id].pid
        now = readings.anonymous_bytes(pid) if pid is not None else None
        return max(0, (now or 0) - self.memory(worker_id).born)

    def set_slot_bytes(self, nbytes: int) -> None:
        self._board.set_slot_bytes(nbytes)

    def _tell(self, order: object) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(pickle.dumps(order))

    def _watch(self, link: _Link) -> None:
        """Have the poller wake us for room in the socket only while something waits for it."""
        fd = link.channel.fileno()
        if fd in self._by_fd:
            self._poll.register(fd, select.POLLIN | (select.POLLOUT if link.channel.has_unsent else 0))

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wake_for(self, bell: Bell) -> None:
        self._bell = bell
        self._poll.register(bell, select.POLLIN)

    def wait(self, timeout_s: float) -> deque[Event]:
        if not self._backlog:
            self._wait(timeout_s)
        return self._backlog

    def _wait(self, timeout_s: float) -> None:
        """Put what happens into the backlog, each event as soon as it is known: an interrupt must not lose it."""
        if self._process is None:
            raise WorkerInitError("the workers are gone and could not be started again")
        self._read_mail()
        ready = self._poll.poll(min(timeout_s, _POLL_S) * 1000)
        if not ready:
            self._check_pulse(min(timeout_s, _POLL_S))
            return
        known = dict(self._by_fd)
        for fd, what in ready:
            link = known.get(fd)
            if link is not None and self._by_fd.get(fd) is not link:
                continue  # news of a socket that was closed in this very loop; its number may be another's by now
            if link is not None:
                self._hear(link, what)
            elif self._bell is not None and fd == self._bell.fileno():
                self._bell.hush()
            elif fd != self._pidfd:
                self._listen()
        if any(fd == self._pidfd for fd, _ in ready):
            self._replace_supervisor(has_ended=True)

    def _hear(self, link: _Link, what: int) -> None:
        if what & select.POLLOUT:
            with contextlib.suppress(OSError):
                link.channel.flush()
            self._watch(link)
        if what & ~select.POLLOUT and not self._receive(link) and what & (select.POLLHUP | select.POLLERR):
            self._stop_watching(link)  # its end is closed and empty; how it died comes by the control socket

    def _receive(self, link: _Link) -> bool:
        """Take in one header, if there is one."""
        try:
            received = link.channel.receive()
        except BlockingIOError:
            return False
        if received is None:
            return False
        self._backlog.append(UnitDone(link.worker_id, messages.unpack_result(received[0]), received[1]))
        self._restarts_in_a_row = 0
        self._has_been_ready = True
        return True

    def _listen(self) -> None:
        """What the supervisor says. Its death is not noticed here but by its pidfd."""
        assert self._control is not None
        while True:
            try:
                received = self._control.receive_whole()
            except BlockingIOError:
                return
            if received is None:
                self._control_open = False
                self._unregister(self._control.fileno())
                return
            message, fds = pickle.loads(received[0]), received[1]
            successor = [(message.successor, fds)] if isinstance(message, Exited) and message.successor else []
            self._mail.extend([(message, fds), *successor])
            self._read_mail()

    def _read_mail(self) -> None:
        """Act on what the supervisor said.

        What an interrupt cuts short is not done again: its descriptors may be closed by then. All workers start over.
        """
        while self._mail:
            message, fds = self._mail.popleft()
            if isinstance(message, Exited):
                self._bury(message)
                continue
            if isinstance(message, Refused):
                self._refused = message
                continue
            if len(fds) != 2:
                raise giving_up.no_descriptors(front=self._job.front)
            self._welcome(message, *fds)

    def _welcome(self, started: Started, sock_fd: int, pidfd: int) -> None:
        worker_id = started.worker_id
        self.new_interpreters = started.tainted_by
        link = self._links[worker_id] = _Link(worker_id, started.life, socket.socket(fileno=sock_fd))
        self._by_fd[link.channel.fileno()] = link
        self._poll.register(link.channel.fileno(), select.POLLIN)
        self._workers[worker_id].begin_life(started.pid, pidfd)
        self.lives.started(worker_id, started.pid)
        waiting = self._waiting.get(worker_id, [])
        while waiting:
            self._send(link, waiting.pop(0))
        if worker_id in self._unwelcome:
            self._unwelcome.discard(worker_id)
            link.channel.end_sending()

    def _bury(self, exited: Exited) -> None:
        link = self._links.pop(exited.worker_id, None)
        if link is not None:
            self._drain(link)
        self._workers[exited.worker_id].end_life(exited.exitcode)
        self.lives.ended(exited.worker_id, exited.reason, replaced=exited.replaced)
        lost = WorkerLost(
            exited.worker_id,
            exited.pid,
            exited.exitcode,
            exited.doing,
            exited.replaced,
            exited.reason,
            exited.evidence,
        )
        if self._memory is not None:
            self._memory.look_again()  # a kill that was counted by now was this worker's
        self._unsettled.add(exited.worker_id)
        self._backlog.append(lost)

    def _drain(self, link: _Link) -> None:
        """What a worker finished before it ended, then nothing more from it."""
        if link.channel.fileno() < 0:
            return  # drained before; an interrupt came before the link was removed
        while self._receive(link):
            pass
        self._stop_watching(link)
        link.channel.close()

    def _stop_watching(self, link: _Link) -> None:
        fd = link.channel.fileno()
        if self._by_fd.pop(fd, None) is not None:
            self._unregister(fd)

    def _unregister(self, fd: int) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(fd)

    # -- the supervisor's health -----------------------------------------------------------------------------------

    def _check_pulse(self, waited_s: float) -> None:
        if self._memory is not None:
            self._memory.tick(time.monotonic(), 0, 0)
        if self._descendants is not None:
            self._descendants.look((self._process.pid,))
        ticks = self._board.ticks()
        if ticks != self._ticks_seen:
            self._ticks_seen, self._silent_s, self._stopped_s = ticks, 0.0, 0.0
            return
        if _is_stopped(self._process.pid):
            self._stopped_s += waited_s
        else:
            self._silent_s, self._stopped_s = self._silent_s + waited_s, 0.0
        # While it imports the user's modules or starts a new interpreter it cannot tick, for as long as that takes.
        silent_after_s = _SILENT_WHEN_BUSY_S if self._board.is_busy() else _SILENT_AFTER_S
        if self._silent_s >= silent_after_s or self._stopped_s > watching.STOPPED_GRACE_S:
            self._replace_supervisor(has_ended=False)

    def _replace_supervisor(self, *, has_ended: bool) -> None:
        """Kill what is left, keep what was finished, start anew."""
        seen, refused, times = self._seen_of_supervisor(has_ended), self._refused, self._restarts_in_a_row + 1
        why = self._why_no_other(seen, times, had_workers=bool(self._links))
        self._bury_everything()
        self._restarts_in_a_row = times
        if why is not None:
            raise why
        if refused is not None:
            said = OSError(refused.number, os.strerror(refused.number))
            seen = inquiry.evidence_of(said, "\n".join(refused.reached), "starting", self.start_method)
        self._start_anew(seen)

    def _why_no_other(self, seen: Evidence, times: int, *, had_workers: bool) -> WorkerError | None:
        """What to raise in place of starting another supervisor; None if another is to be started.

        `times`: how many were lost in a row, without a finished unit in between.
        """
        front = self._job.front
        if self._refused is not None:
            if self._refused.had_all and times <= _MAX_SUPERVISOR_RESTARTS:
                return None  # with all workers ended there is room, as there was before
            return giving_up.refused(self._refused.number, self._refused.reached, "all workers were ended", front=front)
        is_killed = self._is_killed(seen)
        if is_killed:
            least = _MAX_SUPERVISOR_RESTARTS if had_workers or self._job.has_ranks else 0
            most = max(self._job.max_restarts, least)
        else:
            # A fork has nothing of its own to fail with before its first worker; a new interpreter has a main script.
            most = _MAX_SUPERVISOR_RESTARTS if had_workers or self._is_forked else 1
        if times <= most:
            return None
        if not had_workers and not is_killed:
            return self._why_no_start()
        importing = None if had_workers else self._importing()
        return giving_up.no_progress(SupervisorLost(seen), times, importing, front=front)

    def _is_killed(self, seen: Evidence) -> bool:
        """Whether another process has ended, or stopped, the supervisor: not the kernel, for want of memory."""
        is_from_outside = seen.is_stopped or restarts.is_from_outside(seen.exit_code)
        return is_from_outside and not any(signs.out_of_memory_kills(seen))

    def _seen_of_supervisor(self, has_ended: bool) -> Evidence:
        """Before anything is ended by us."""
        assert self._memory is not None
        if has_ended:
            self._process.join(_STOP_MARGIN_S)  # a fork server says a little later how it ended
        before, after = self._memory.around_death()
        return Evidence(
            Ending.SUPERVISOR,
            exit_code=self._process.exitcode if has_ended else None,
            start_method=self.start_method,
            counters_before=before,
            counters_after=after,
            pid=self._process.pid,
            is_stopped=not has_ended and _is_stopped(self._process.pid),
        )

    def _why_no_start(self) -> WorkerInitError:
        """A supervisor is gone that has not started a worker: of the main script, or of a module of the user's."""
        self._process.join(_STOP_MARGIN_S)  # a fork server says a little later how it ended
        pid, exitcode = self._process.pid, self._process.exitcode
        return no_start.error_of("supervisor", pid, exitcode, self._importing(), front=self._job.front)

    def _importing(self) -> str | None:
        """The module that the supervisor was importing last, before it had any worker."""
        number = self._board.importing()
        return sorted(self._carried.modules)[number - 1] if number else None

    def end_all(self) -> None:
        self._bury_everything()

    def start_over(self) -> None:
        self.end_all()
        self._start_anew(Evidence(Ending.INTERRUPTED, start_method=self.start_method))

    def _start_anew(self, seen: Evidence) -> None:
        lost = SupervisorLost(seen, tuple(map(self._board.doing, range(len(self._workers)))))
        try:
            self._start_supervisor()
        except OSError as error:
            why = lost.diagnosis.summary
            done = f"no other supervisor was started for one that {why}"
            raise giving_up.cannot_start(error, done, front=self._job.front) from error
        self._unsettled.update(range(len(self._workers)))
        self._backlog.append(lost)

    def _bury_everything(self) -> None:
        self._kill_everything()
        for link in list(self._links.values()):
            self._drain(link)
        self._forget_supervisor()

    def _kill_everything(self) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        for worker in self._workers:
            worker.kill()
        deadline = time.monotonic() + _STOP_MARGIN_S
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        if self._descendants is not None:
            self._descendants.end()

    def _forget_supervisor(self) -> None:
        for worker in self._workers:
            worker.end_life(-signal.SIGKILL)
        self.lives.all_ended()
        self._links.clear()
        self._by_fd.clear()
        self._waiting.clear()
        self._unwelcome.clear()
        self._mail.clear()
        self._poll = select.poll()  # the old one may hold closed descriptors, after an interrupt
        if self._bell is not None:
            self._poll.register(self._bell, select.POLLIN)
        self._refused = None
        # Cleared before it is closed: if a signal handler raises in between, no closed descriptor may be used again,
        # whose number may be another file's by then.
        control, self._control = self._control, None
        if control is not None:
            control.shutdown()
            control.close()
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)
        if self._process is not None:
            self._process.join(_STOP_MARGIN_S)
            with contextlib.suppress(ValueError):  # still running, in the kernel: abandoned, never waited for
                self._process.close()
            self._process = None

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self, grace_s: float) -> None:
        if self._board is None:
            return
        self.lives.is_closing = True
        if self._process is not None and self._control is not None and self._pidfd >= 0:
            self._tell(Stop(grace_s))
            for link in self._links.values():
                link.channel.shutdown()
            if not self._await_end(grace_s + _STOP_MARGIN_S):
                self._kill_everything()
            self._hear_the_rest()
        for link in self._links.values():
            link.channel.close()
        self._forget_supervisor()
        self._board.close()
        self._board = None  # type: ignore[assignment]

    def _await_end(self, timeout_s: float) -> bool:
        """Wait for the supervisor's exit, and meanwhile send away the workers that we only hear of now."""
        assert self._control is not None
        self._waiting.clear()
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(left * 1000)}
            if self._pidfd in ready:
                return True
            if ready:
                open_ended = self._hear_the_rest()
                for link in self._links.values():
                    link.channel.shutdown()
                if not open_ended:
                    poll.unregister(self._control)
        return False

    def _hear_the_rest(self) -> bool:
        """Take in exit codes; results come too late. False when the supervisor has nothing more to say."""
        self._listen()
        while self._backlog:
            event = self._backlog.popleft()
            if isinstance(event, UnitDone):
                for handle in event.handles:
                    discard(handle)
        return self._control_open


def _is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False
