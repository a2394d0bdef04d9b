"""What a worker leaves behind for whoever asks why it ended: made before it starts, read when it is gone.

    parent: KeptTraces() ──ends──► worker: install()               crash page, stacks, libraries, stderr
      at every tick: watch()                                       its memory, the kernel's counters
      after its death: evidence() ──► main: diagnosis

Nothing here costs anything per sample. `untraced.py` has the same interface. Runs in: supervisor process (Traces),
worker process (TraceEnds).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.board_rows import Phase
from holdfast.diagnosis.collect import MemoryWatch, counted_a_kill, read_counters
from holdfast.diagnosis.evidence import Evidence
from holdfast.diagnosis.native.crash_page import FATAL_SIGNALS, RECORDED_SIGNALS, CrashPage
from holdfast.diagnosis.native.loads import LibraryReporter
from holdfast.diagnosis.native.mappings import LibraryPage
from holdfast.memory import cgroups
from holdfast.workers import stderr
from holdfast.workers.board import Doing
from holdfast.workers.hang_stacks import LOOK_EVERY_S, HangStacks
from holdfast.workers.messages import ENDINGS, Reason
from holdfast.workers.passing import PassedFd
from holdfast.workers.watching import STACK_SIGNAL

_STACK_BYTES = 16 * 1024  # it travels in one message
_MOST_STACK_BYTES = 16 * 1024 * 1024  # a hundred threads, a hundred frames each, is what faulthandler writes at most


class TraceEnds(Protocol):
    """The worker's part. It is pickled, where the worker is no fork."""

    def install(self, *, is_forked: bool) -> Callable[[], None]:
        """In the worker, first of all. Returns what is to be called now and then."""
        ...

    def install_handlers(self) -> None:
        """Once more, when the user's code has run."""
        ...


class Relay(Protocol):
    """A worker's stderr, on its way to the user. `fd` is to be polled while `wants_more`."""

    fd: int

    @property
    def wants_more(self) -> bool: ...

    def name(self, who: str) -> None: ...

    def take_in(self) -> bool: ...


class Traces(Protocol):
    """The parent's part, for one life of one worker."""

    @property
    def stderr(self) -> Relay: ...

    @property
    def ends(self) -> TraceEnds: ...

    @property
    def descriptors(self) -> list[int]:
        """What other workers must not keep open."""
        ...

    @property
    def kept_here(self) -> list[int]:
        """What its own worker must not keep open either."""
        ...

    def begin(self, pid: int) -> None:
        """The worker has its ends."""
        ...

    def watch(self, doing: Doing, now_s: float) -> None:
        """At every tick while the worker lives."""
        ...

    def has_stacks(self, pidfd: int) -> bool:
        """Asked again and again of a worker that hangs, until it may be ended."""
        ...

    def take_stacks(self) -> None:
        """The same, waited for."""
        ...

    def saw_memory_kill(self) -> bool:
        """When the worker has ended: whether the kernel has killed for want of memory since it was last looked at."""
        ...

    def evidence(self, reason: Reason, exit_code: int, doing: Doing, surroundings: Surroundings) -> Evidence:
        """When the worker has ended, and before it is forgotten. Closes everything."""
        ...

    def discard(self) -> None:
        """Of a worker that is not asked about."""
        ...


@dataclass(frozen=True)
class KeptTraceEnds:
    """Has the worker leave all there is."""

    stacks: PassedFd
    crash: PassedFd
    libraries: PassedFd
    stderr: PassedFd

    def install(self, *, is_forked: bool) -> Callable[[], None]:
        """What is to be called now and then notes newly loaded libraries."""
        stderr.redirect(self.stderr.fd)
        faulthandler.register(STACK_SIGNAL, file=self.stacks.fd, all_threads=True)
        CrashPage(self.crash.fd).install(self.stacks.fd)
        return LibraryReporter(LibraryPage(self.libraries.fd), is_forked).look

    def install_handlers(self) -> None:
        """The user's code may have undone ours. Those it needs itself stay."""
        CrashPage(self.crash.fd).renew(self.stacks.fd)


class KeptTraces:
    """All that the worker can leave."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as undo:  # there may be no descriptor left for one of them
            self._stacks = os.memfd_create("holdfast-stacks", os.MFD_CLOEXEC)
            undo.callback(os.close, self._stacks)
            self._crash = CrashPage.create()
            undo.callback(self._crash.close)
            self._libraries = LibraryPage.create()
            undo.callback(self._libraries.close)
            reading, self._theirs = os.pipe2(os.O_CLOEXEC)
            undo.pop_all()
        self.stderr = stderr.Relay(reading)
        self._pid = -1
        self._before = read_counters(cgroups.memory_cgroup_of(os.getpid()))  # it may die before it is watched
        self._memory: MemoryWatch | None = None
        self._is_ready = False
        self._hang: HangStacks | None = None  # once it does
        self._missing: list[str] = []

    @property
    def ends(self) -> TraceEnds:
        fds = self._stacks, self._crash.fd, self._libraries.fd, self._theirs
        return KeptTraceEnds(*map(PassedFd, fds))

    @property
    def descriptors(self) -> list[int]:
        fds = self._stacks, self._crash.fd, self._libraries.fd, self.stderr.fd, self._theirs
        return [*(fd for fd in fds if fd >= 0), *(self._hang.descriptors if self._hang is not None else ())]

    @property
    def kept_here(self) -> list[int]:
        return [self.stderr.fd]

    def begin(self, pid: int) -> None:
        os.close(self._theirs)
        self._theirs = -1
        self._pid = pid
        self._memory = MemoryWatch(pid, self._before)

    def watch(self, doing: Doing, now_s: float) -> None:
        assert self._memory is not None
        if not self._is_ready and doing.phase is not Phase.STARTING:
            self._is_ready = True
            self._memory.look_again()
        self._memory.tick(now_s, doing.unit, doing.position)
        self.stderr.push(unfinished=True)

    def has_stacks(self, pidfd: int) -> bool:
        if self._hang is None:
            self._hang = HangStacks(self._pid, pidfd, self._stacks)
        return self._hang.are_taken()

    def take_stacks(self) -> None:
        try:
            pidfd = os.pidfd_open(self._pid)
        except OSError as error:
            self._missing.append(f"Python stack: {error.strerror}")
            return
        try:
            while not self.has_stacks(pidfd):
                time.sleep(LOOK_EVERY_S)
        finally:
            os.close(pidfd)

    def saw_memory_kill(self) -> bool:
        return self._memory is not None and counted_a_kill(*self._memory.around_death())

    def evidence(self, reason: Reason, exit_code: int, doing: Doing, surroundings: Surroundings) -> Evidence:
        assert self._memory is not None
        before, after = self._memory.around_death()
        is_crash = reason is Reason.EXITED and -exit_code in FATAL_SIGNALS
        is_recorded = reason is Reason.EXITED and -exit_code in RECORDED_SIGNALS
        frame = self._crash.read(-exit_code) if is_recorded else None
        if is_recorded and frame is None:
            self._missing.append(self._crash.missing(-exit_code))
        evidence = Evidence(
            ending=ENDINGS[reason],
            exit_code=exit_code,
            pid=self._pid,
            seen_at=time.time(),
            phase=doing.words,
            is_cut_off=doing.is_cut_off,
            start_method=surroundings.start_method,
            frame=frame,
            mappings=self._libraries.read_or_own(surroundings.forks_itself) if is_crash else (),
            stack_limit_bytes=_limit(resource.RLIMIT_STACK),
            python_stack=self._python_stack(),
            native_stack=self._hang.native if self._hang is not None else "",
            threads=self._hang.threads if self._hang is not None else None,
            waiting_in=self._hang.waiting_in if self._hang is not None else "",
            stderr_tail=self.stderr.finish(),
            memory=self._memory.history(time.monotonic()),
            memory_at_start_bytes=self._memory.at_start_bytes,
            counters_before=before,
            counters_after=after,
            kills_seen=self._memory.kills_seen() if reason is Reason.EXITED and exit_code == -signal.SIGKILL else None,
            sample_timeout_s=surroundings.sample_timeout_s,
            memory_limit_bytes=surroundings.memory_limit_bytes,
            memory_budget_bytes=surroundings.memory_budget_bytes,
            open_files_limit=_limit(resource.RLIMIT_NOFILE),
            inherited_files=surroundings.inherited_files,
            missing=tuple(filter(None, [*self._missing, *(self._hang.missing if self._hang is not None else ())])),
        )
        self._close()
        return evidence

    def discard(self) -> None:
        self.stderr.finish()
        self._close()

    def _python_stack(self) -> str:
        """Of all threads: as it was asked for, or, after a crash, the one at fault first."""
        asked_for = self._hang.python if self._hang is not None else ""
        return asked_for or _at_fault_first(os.pread(self._stacks, _MOST_STACK_BYTES, 0))

    def _close(self) -> None:
        os.close(self._stacks)
        self._crash.close()
        self._libraries.close()
        if self._hang is not None:
            self._hang.close()
        if self._theirs >= 0:
            os.close(self._theirs)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for all workers of a parent."""

    start_method: str
    forks_itself: bool  # workers are forks of this process: what it has mapped, they have
    sample_timeout_s: float | None = None
    memory_limit_bytes: int | None = None
    memory_budget_bytes: int | None = None
    inherited_files: tuple[str, ...] = ()


def _at_fault_first(stacks: bytes) -> str:
    """As much as fits into a message, and the thread that faulthandler marks before the others. It writes them in
    reverse order of their start, so that the main thread comes last.
    """
    start = max(stacks.rfind(b"Fatal Python error"), 0)
    marked = stacks.find(b"Current thread", start)
    if marked < 0:
        return stacks[start:][:_STACK_BYTES].decode(errors="replace")
    others = stacks.find(b"Thread 0x", start, marked)
    first = others if others >= 0 else marked
    ordered = stacks[start:first] + stacks[marked:] + b"\n" + stacks[first:marked]
    return ordered[:_STACK_BYTES].decode(errors="replace")


def _limit(which: int) -> int | None:
    limit = resource.getrlimit(which)[0]
    return None if limit == resource.RLIM_INFINITY else limit
