"""The thread that `next()` works in after an interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from holdfast.loader.interrupts import Refuge
from waits import PATIENCE_S, wait_until


def test_an_interrupt_while_the_thread_is_started_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who starts one waits for it, and a handler may raise meanwhile: nobody would ever end it."""
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Refuge()
    wait_until_it_has_ended()


class Interrupted(TimeoutError):
    """Raised by a handler."""


@pytest.fixture
def usr1() -> Iterator[signal.Signals]:
    """A signal whose handler raises, and its handler afterwards as before."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield signal.SIGUSR1
    signal.signal(signal.SIGUSR1, before)


def test_what_the_handler_raised_there_is_what_is_raised(usr1: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` takes the thread from a list then, which a thread that runs by now has done itself: a KeyError."""
    start, not_started_yet = threading.Thread.start, dict[threading.Thread, None]()

    def interrupted(self: threading.Thread) -> None:
        start(self)
        try:
            signal.raise_signal(usr1)
        except Exception:
            del not_started_yet[self]
            raise

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(Interrupted):
        Refuge()
    wait_until_it_has_ended()


def wait_until_it_has_ended() -> None:
    wait_until(lambda: "holdfast-next" not in [thread.name for thread in threading.enumerate()], PATIENCE_S, "its end")
