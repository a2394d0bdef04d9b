"""An interrupt, as of Ctrl-C or of a notebook's cell, in the middle of what a pool, a map or a group does here.

That nothing is left is checked after every test.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from typing import Any

import pytest

import calls
import holdfast
from holdfast import ProcessPoolExecutor
from holdfast.pool import dispatcher
from waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(150)
FORK = multiprocessing.get_context("fork")


def test_an_interrupt_at_the_end_of_the_block_ends_what_runs_and_cancels_what_waits() -> None:
    """Where it waits for what was submitted: there a notebook's cell mostly is when it is interrupted."""
    pool = ProcessPoolExecutor(1)
    futures = [pool.submit(calls.die, "hang"), *(pool.submit(calls.square, number) for number in range(5))]
    wait_until(futures[0].running, PATIENCE_S, "the first call")

    def interrupt() -> None:
        wait_until(lambda: pool._is_shut_down, PATIENCE_S, "the end of the block")
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt), pool:
        interrupting.start()
    interrupting.join()
    running, *waiting = futures
    assert isinstance(running.exception(0), holdfast.WorkerError)
    assert all(future.cancelled() for future in waiting)


FRONTS: dict[str, Callable[[], Any]] = {
    "pool": lambda: ProcessPoolExecutor(1, FORK).submit(calls.square, 1),
    "map": lambda: next(holdfast.map(calls.square, [1], num_workers=1, mp_context=FORK)),
    "ranks": lambda: holdfast.spawn(calls.pid_of_worker, nprocs=1, start_method="fork"),
}


@pytest.mark.parametrize("front", FRONTS)
def test_an_interrupt_while_the_supervisor_is_started_leaves_none(front: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held back until that is there: then it must be ended."""
    start = ForkProcess.start

    def start_and_interrupt(process: Any) -> None:
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ForkProcess, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        FRONTS[front]()


def test_an_interrupt_while_the_thread_is_started_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may have the workers by then, and nobody else is to end them."""
    has_begun = threading.Event()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            assert has_begun.wait(PATIENCE_S)
            raise KeyboardInterrupt

    turn = dispatcher.Dispatcher._turn

    def first_turn(self: Any) -> None:
        has_begun.set()
        turn(self)

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher.threading, "Thread", Interrupted)  # type: ignore[attr-defined]
        patch.setattr(dispatcher.Dispatcher, "_turn", first_turn)
        with pytest.raises(KeyboardInterrupt):
            FRONTS["pool"]()
