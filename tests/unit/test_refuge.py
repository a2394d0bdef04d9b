"""The thread that `next()` works in after an interrupt."""

from __future__ import annotations

import threading

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
    wait_until(lambda: "holdfast-next" not in [thread.name for thread in threading.enumerate()], PATIENCE_S, "its end")
