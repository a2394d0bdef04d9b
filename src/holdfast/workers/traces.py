"""What a worker leaves behind for whoever asks why it ended: made before it starts, read when it is gone.

    parent: Traces() ──ends──► worker: install()                   crash page, stacks, libraries, stderr
      at every tick: watch()                                       its memory, the kernel's counters
      after its death: evidence() ──► main: diagnosis

Nothing here costs anything per sample. Runs in: supervisor process (Traces), worker process (TraceEnds).
"""

from __future__ import annotations

import faulthandler
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.diagnosis.collect import MemoryWatch
from holdfast.diagnosis.evidence import Evidence
from holdfast.diagnosis.native.crash_page import FATAL_SIGNALS, RECORDED_SIGNALS, CrashPage
from holdfast.diagnosis.native.hang import native_stack
from holdfast.diagnosis.native.loads import LibraryReporter
from holdfast.diagnosis.native.mappings import LibraryPage
from holdfast.workers import stderr
from holdfast.workers.board import DOING, Doing, Phase
from holdfast.workers.messages import ENDINGS, Reason
from holdfast.workers.passing import PassedFd
from holdfast.workers.watching import STACK_SIGNAL, take_stack

_STACK_BYTES = 16 * 1024


@dataclass(frozen=True)
class TraceEnds:
    """The worker's part."""

    stacks: PassedFd
    crash: PassedFd
    libraries: PassedFd
    stderr: PassedFd

    def install(self, *, is_forked: bool) -> Callable[[], None]:
        """In the worker, first of all. Returns what is to be called now and then: it notes newly loaded libraries."""
        stderr.redirect(self.stderr.fd)
        faulthandler.register(STACK_SIGNAL, file=self.stacks.fd, all_threads=True)
        self.install_handlers()
        return LibraryReporter(LibraryPage(self.libraries.fd), is_forked).look

    def install_handlers(self) -> None:
        """Once more when the user's code may have set handlers of its own: the last one counts."""
        CrashPage(self.crash.fd).install(self.stacks.fd)


class Traces:
    """The parent's part, for one life of one worker."""

    def __init__(self) -> None:
        self._stacks = os.memfd_create("holdfast-stacks", os.MFD_CLOEXEC)
        self._crash = CrashPage.create()
        self._libraries = LibraryPage.create()
        reading, self._theirs = os.pipe2(os.O_CLOEXEC)
        self.stderr = stderr.Relay(reading)
        self._pid = -1
        self._memory: MemoryWatch | None = None
        self._is_ready = False
        self._hang_stack = ""
        self._native_stack = ""
        self._waiting_in = ""
        self._missing: list[str] = []

    @property
    def ends(self) -> TraceEnds:
        fds = self._stacks, self._crash.fd, self._libraries.fd, self._theirs
        return TraceEnds(*map(PassedFd, fds))

    @property
    def descriptors(self) -> list[int]:
        """What other workers must not keep open."""
        fds = self._stacks, self._crash.fd, self._libraries.fd, self.stderr.fd, self._theirs
        return [fd for fd in fds if fd >= 0]

    @property
    def kept_here(self) -> list[int]:
        """What its own worker must not keep open either."""
        return [self.stderr.fd]

    def begin(self, pid: int) -> None:
        """The worker has its ends."""
        os.close(self._theirs)
        self._theirs = -1
        self._pid = pid
        self._memory = MemoryWatch(pid)

    def watch(self, doing: Doing, now_s: float) -> None:
        """At every tick while the worker lives."""
        assert self._memory is not None
        if not self._is_ready and doing.phase is not Phase.STARTING:
            self._is_ready = True
            self._memory.look_again()
        self._memory.tick(now_s, doing.unit, doing.position)
        self.stderr.push(unfinished=True)

    def take_stacks(self) -> None:
        """Of a worker that hangs and is about to be ended: by itself, else by py-spy."""
        self._waiting_in = _first_line(f"/proc/{self._pid}/wchan")  # before the signal, which wakes it
        pidfd = os.pidfd_open(self._pid)
        try:
            self._hang_stack = take_stack(pidfd, self._stacks)
        finally:
            os.close(pidfd)
        if not self._hang_stack:
            self._native_stack, why_not = native_stack(self._pid)
            self._missing += ["Python stack: the worker blocks the signal that asks for it", why_not]

    def evidence(self, reason: Reason, exit_code: int, doing: Doing, surroundings: Surroundings) -> Evidence:
        """When the worker has ended, and before it is forgotten. Closes everything."""
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
            phase=DOING[doing.phase],
            start_method=surroundings.start_method,
            frame=frame,
            mappings=self._libraries.read_or_own(surroundings.forks_itself) if is_crash else (),
            stack_limit_bytes=_limit(resource.RLIMIT_STACK),
            python_stack=self._python_stack(),
            native_stack=self._native_stack,
            waiting_in=self._waiting_in,
            stderr_tail=self.stderr.finish(),
            memory=self._memory.history(time.monotonic()),
            counters_before=before,
            counters_after=after,
            sample_timeout_s=surroundings.sample_timeout_s,
            memory_limit_bytes=surroundings.memory_limit_bytes,
            memory_budget_bytes=surroundings.memory_budget_bytes,
            open_files_limit=_limit(resource.RLIMIT_NOFILE),
            inherited_files=surroundings.inherited_files,
            missing=tuple(filter(None, self._missing)),
        )
        self._close()
        return evidence

    def discard(self) -> None:
        """Of a worker that is not asked about."""
        self.stderr.finish()
        self._close()

    def _python_stack(self) -> str:
        """Of all threads: as it was asked for, or, after a crash, the one at fault first."""
        return self._hang_stack or os.pread(self._stacks, _STACK_BYTES, 0).decode(errors="replace")

    def _close(self) -> None:
        os.close(self._stacks)
        self._crash.close()
        self._libraries.close()
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


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _limit(which: int) -> int | None:
    limit = resource.getrlimit(which)[0]
    return None if limit == resource.RLIM_INFINITY else limit
