"""A child process that has one of the loaders, seen from outside: orders in, answers out, and never a wait without end.

    ask(order, limit_s) ──► an answer | Lost: it hung past the limit, or died

A child that is lost is killed with everything it has started; the next order starts another. Nothing is left at the
end: it is a session of its own, and its descendants are killed by their numbers as well.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from holdfast.diagnosis.wording import signal_name

START_LIMIT_S = 120.0
"""To import torch and the dataset."""
_CLOSE_S = 5.0


class LostError(Exception):
    """It hung, or died: in words."""

    def __init__(self, message: str, *, is_hang: bool) -> None:
        super().__init__(message)
        self.is_hang = is_hang


class NotPlayableError(Exception):
    """There is no such dataset: in words for who gave the command."""


class Opponent:
    """One loader."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command, self._environment = command, environment
        self._child: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self.dataset: dict[str, Any] = {}

    def begin(self) -> None:
        """Start it, if that is not done already; `ready` waits for it."""
        if self._child is not None:
            return
        self.dataset, self._buffer = {}, b""
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )

    def ready(self) -> None:
        """Wait until its imports are over: nothing is measured before."""
        self.begin()
        if self.dataset:
            return
        said = self._answer(START_LIMIT_S, "while it imported the dataset")
        if "usage" in said:
            self.close()
            raise NotPlayableError(said["usage"])
        self.dataset = said

    def ask(self, order: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Give an order and wait for its answer. LostError past the limit."""
        self.ready()
        assert self._child is not None
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead: the answer will not come either
            self._child.stdin.write(json.dumps(order).encode() + b"\n")
            self._child.stdin.flush()
        return self._answer(limit_s, "")

    def close(self) -> None:
        """End it, and all that it has started."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]
        _kill(child)
        child.stdout.close()  # type: ignore[union-attr]

    def _answer(self, limit_s: float, doing: str) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        descriptor, deadline = self._child.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            ready = left_s > 0 and select.select([descriptor], [], [], left_s)[0]
            data = os.read(descriptor, 1 << 16) if ready else b""
            if not data:
                raise self._lost(limit_s, is_dead=bool(ready), doing=doing)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self, limit_s: float, *, is_dead: bool, doing: str) -> LostError:
        child = self._child
        assert child is not None
        status: int | None = None
        if is_dead:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = child.wait(_CLOSE_S)
        self.close()
        if status is None:
            return LostError(f"it hung: no answer within {limit_s:.0f} s {doing}".strip(), is_hang=True)
        how = f"of {signal_name(-status)}" if status < 0 else f"with status {status}"
        return LostError(f"the whole process died {how} {doing}".strip(), is_hang=False)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Its descendants are found first: without their parent they could not be."""
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(child.pid).children(recursive=True)
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # not reaped yet: the number is still the child's
    with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for a disk that is gone, and ends when it can
        child.wait(_CLOSE_S)
    for process in below:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(below, timeout=_CLOSE_S)
