"""Children that crash with a crash page installed, and what their parent is left with.

Runs in: the test process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import crashing
import holdfast
from holdfast.diagnosis.evidence import Ending, Evidence, Frame
from holdfast.diagnosis.native.crash_page import CrashPage
from holdfast.diagnosis.native.mappings import LibraryPage
from waits import PATIENCE_S, wait_until

STARTS = ("fork", "new interpreter")


class Crash(NamedTuple):
    """What is known of a child after its death."""

    exit_signal: int  # 0 or below: it ended by itself, with this status
    frame: Frame | None
    missing: str  # why there is no frame
    evidence: Evidence


class Pages:
    """What a worker is given to write on. Serves one child after another."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.crash = CrashPage.create()
        self.libraries = LibraryPage.create()
        self.stacks = os.memfd_create("stacks")

    def close(self) -> None:
        self.crash.close()
        self.libraries.close()
        os.close(self.stacks)

    def clear(self) -> None:
        self.crash.clear()
        self.libraries.clear()
        os.ftruncate(self.stacks, 0)

    def run(
        self,
        crash: Callable[..., None],
        *args: str,
        while_running: Callable[[int], None] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> Crash:
        """Run a function of `crashing` in a child, and wait for its end."""
        with self._child(crash, args, pass_fds) as pid:
            if while_running is not None:
                while_running(pid)
            return self._after_death(-os.waitstatus_to_exitcode(_wait(pid)))

    @contextlib.contextmanager
    def _child(self, crash: Callable[..., None], args: tuple[str, ...], pass_fds: tuple[int, ...]) -> Iterator[int]:
        pid = self._fork(crash, args) if self.start == "fork" else self._new(crash, args, pass_fds)
        try:
            yield pid
        finally:
            _end(pid)

    def _fork(self, crash: Callable[..., None], args: tuple[str, ...]) -> int:
        pid = os.fork()
        if not pid:
            given = crashing.Given(self.crash, self.libraries, self.stacks)
            crashing.crash_as_a_worker(given, crash, args, forked=True)
        return pid

    def _new(self, crash: Callable[..., None], args: tuple[str, ...], pass_fds: tuple[int, ...]) -> int:
        fds = (self.crash.fd, self.libraries.fd, self.stacks)
        process = subprocess.Popen(
            [sys.executable, crashing.__file__, *map(str, fds), crash.__name__, *args],
            pass_fds=[fd for fd in (*fds, *pass_fds) if fd >= 0],
            env={**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).parents[1])},
        )
        process.returncode = 0  # it is waited for by its pid
        return process.pid

    def _after_death(self, number: int) -> Crash:
        frame = self.crash.read(number)
        evidence = Evidence(
            ending=Ending.EXITED,
            exit_code=-number,
            frame=frame,
            mappings=self.libraries.read_or_own(self.start == "fork"),
            python_stack=os.pread(self.stacks, 1 << 20, 0).decode(errors="replace"),
        )
        return Crash(number, frame, "" if frame is not None else self.crash.missing(number), evidence)


def _wait(pid: int) -> int:
    statuses: list[int] = []

    def has_ended() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        statuses.append(status)
        return found == pid

    wait_until(has_ended, PATIENCE_S, f"the end of process {pid}")
    return statuses[-1]


def _end(pid: int) -> None:
    """Of a test that failed before the child had ended."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
