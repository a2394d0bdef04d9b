"""The stacks of a worker that hangs and is about to be ended: by itself, else by py-spy.

    signal ──► it writes them, within milliseconds ──► taken
          └──► it does not ──► py-spy ──► taken, or the reason why not

Nothing is waited for: many workers may hang at the same moment, and whoever watches them has to show that it is well.
Runs in: supervisor process; main process, of the portable backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.diagnosis.native.hang import NativeStackRequest
from holdfast.workers.watching import StackRequest

LOOK_EVERY_S = 0.01
"""How often to ask for what comes within milliseconds."""
_TAKEN = object()


class HangStacks:
    """Of one worker. `file` is where it writes its own."""

    def __init__(self, pid: int, pidfd: int, file: int) -> None:
        self.waiting_in = _first_line(f"/proc/{pid}/wchan")  # before the signal, which wakes it
        self.python = ""
        self.native = ""
        self.missing: list[str] = []
        self._tool: NativeStackRequest | None = None
        self._steps = self._take(pid, StackRequest(pidfd, file))

    def are_taken(self) -> bool:
        """Asked again and again. What was not to be had by then is in `missing`."""
        return next(self._steps, _TAKEN) is _TAKEN

    def _take(self, pid: int, request: StackRequest) -> Iterator[None]:
        while (stack := request.answer()) is None:
            yield
        self.python = stack
        if stack:
            return
        self.missing.append("Python stack: the worker blocks the signal that asks for it")
        self._tool = NativeStackRequest(pid)
        while (answer := self._tool.answer()) is None:
            yield
        self.native, why_not = answer
        self.missing.append(why_not)
        self._tool.close()

    @property
    def descriptors(self) -> list[int]:
        return self._tool.descriptors if self._tool is not None else []

    def close(self) -> None:
        if self._tool is not None:
            self._tool.close()


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
