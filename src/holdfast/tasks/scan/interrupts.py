"""Ctrl-C and SIGTERM: the first one ends the scan in order, and what comes while it ends changes nothing.

The worker processes, which get a Ctrl-C of the terminal as well, do not heed it: they are ended by their loader, and no
sample is to look bad for having been interrupted.

Runs in: main process; the handlers also in forked workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A signal asks to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted at the first signal. A signal that was ignored before stays so, as under nohup."""
    owner, has_come = os.getpid(), False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal has_come
        if os.getpid() != owner:
            _as_a_worker(number)
        elif not has_come:
            has_come = True
            raise Interrupted(number)

    heeded = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_from_now_on() -> None:
    """The process is ending, for the sake of a signal: more of them are not to disturb that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _as_a_worker(number: int) -> None:
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
