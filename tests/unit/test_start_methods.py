"""What a new process is started with."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler

import pytest

from forked import holds_in_a_fork
from holdfast.workers.start_methods import ImportersName, ignore_interrupts, interrupts_held_back
from waits import PATIENCE_S


@pytest.fixture
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_the_name_of_an_importer_is_a_name_like_any_other(collecting: None) -> None:
    """And by the time a new interpreter has it, the garbage collector is off."""
    name = ImportersName("supervisor")
    assert name == "supervisor"
    assert gc.isenabled()
    arrived = pickle.loads(bytes(ForkingPickler.dumps({"name": name, "main": "train.py"})))
    assert arrived == {"name": "supervisor", "main": "train.py"}
    assert type(arrived["name"]) is str
    assert not gc.isenabled()


def test_what_arrives_needs_no_module_of_ours(collecting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read before the new interpreter knows where to look for one."""
    data = bytes(ForkingPickler.dumps(ImportersName("supervisor")))
    for module in [name for name in sys.modules if name.partition(".")[0] == "holdfast"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert pickle.loads(data) == "supervisor"


@pytest.fixture
def another_thread() -> Iterator[None]:
    """To which the kernel gives a signal of the process that the main thread has blocked."""
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait)
    thread.start()
    yield
    may_end.set()
    thread.join(PATIENCE_S)


def interrupt_this_process() -> None:
    """Until Python knows of it. Its handler is run before the next instruction."""
    ours, pythons = socket.socketpair()
    with ours, pythons:
        pythons.setblocking(False)
        before = signal.set_wakeup_fd(pythons.fileno())
        try:
            os.kill(os.getpid(), signal.SIGINT)
            assert select.select([ours], [], [], PATIENCE_S)[0]
        finally:
            signal.set_wakeup_fd(before)


def interrupt_a_start(steps: list[str], error: OSError | None = None) -> None:
    with interrupts_held_back():
        steps.append("started")
        interrupt_this_process()
        if error is not None:
            raise error
        steps.append("taken note of")


def test_an_interrupt_that_is_held_back_comes_at_the_end(another_thread: None) -> None:
    """Also where another thread does not block it, as in a notebook's kernel: no start of a process is cut short."""
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt_a_start(steps)
    assert steps == ["started", "taken note of"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_a_start_is_not_lost_with_an_interrupt(another_thread: None) -> None:
    """It is what was being handled when the interrupt came."""
    error = OSError("no more processes")
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupt_a_start([], error)
    assert caught.value.__context__ is error


def test_without_an_interrupt_nothing_comes_and_the_next_one_is_as_ever() -> None:
    """The handler that stood in for the user's is gone."""
    with interrupts_held_back():
        pass
    with pytest.raises(KeyboardInterrupt):
        interrupt_this_process()


def test_a_process_that_was_forked_meanwhile_has_the_users_handler() -> None:
    """Which is what its workers get, as torch's do."""
    before = signal.getsignal(signal.SIGINT)
    with interrupts_held_back():
        assert signal.getsignal(signal.SIGINT) is not before
        assert holds_in_a_fork(lambda: ignore_interrupts() is before)
