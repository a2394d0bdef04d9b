"""What a worker leaves behind, on real processes: exit, crash, hang, and one that does not answer."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

if sys.platform != "linux":
    pytest.skip("traces are kept on Linux only", allow_module_level=True)

from holdfast.board_rows import Phase
from holdfast.diagnosis import python_frames
from holdfast.diagnosis.evidence import Ending, Evidence
from holdfast.diagnosis.native import hang
from holdfast.diagnosis.native.crash_page import can_have_registers
from holdfast.workers import stderr
from holdfast.workers.board import Doing
from holdfast.workers.messages import Reason
from holdfast.workers.traces import KeptTraces, Surroundings
from holdfast.workers.untraced import make_traces
from native_libraries import BREAKPOINT, compile_library
from waits import PATIENCE_S, is_running, wait_until

HERE = Surroundings("fork", forks_itself=True, sample_timeout_s=1.5, inherited_files=("/data/samples.db",))
LOADING = Doing(life=1, phase=Phase.FETCH, unit=4, attempt=0, position=2, span=1)
STARTING = Doing(life=1, phase=Phase.STARTING, unit=-1, attempt=0, position=-1, span=0)


class Worker:
    """A forked process with traces, and its supervisor's part."""

    def __init__(self, body: Callable[[], None], init: Callable[[], object]) -> None:
        self.traces = KeptTraces()
        self.traces.stderr._out = self.screen = os.memfd_create("screen")
        self.pid = os.fork()
        if not self.pid:
            self._run(body, init)
        self.traces.begin(self.pid)

    def _run(self, body: Callable[[], None], init: Callable[[], object]) -> None:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            self.traces.ends.install(is_forked=True)
            init()
            self.traces.ends.install_handlers()
            os.write(2, b"ready\n")
            body()
        finally:
            os._exit(0)

    def wait_until_ready(self) -> None:
        def has_said() -> bool:
            self.traces.stderr.take_in()
            return os.fstat(self.screen).st_size > 0

        wait_until(has_said, PATIENCE_S, "a worker that is ready")

    def end(self, reason: Reason = Reason.EXITED, doing: Doing = LOADING) -> Evidence:
        _, status = os.waitpid(self.pid, 0)
        return self.traces.evidence(reason, os.waitstatus_to_exitcode(status), doing, HERE)

    def close(self) -> None:
        """Of a test that failed on its way."""
        if is_running(self.pid):
            with contextlib.suppress(ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        os.close(self.screen)


class Start(Protocol):
    """Starts a worker. `init` is the user's code that runs before it is ready."""

    def __call__(self, body: Callable[[], None], init: Callable[[], object] = ...) -> Worker: ...


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Worker] = []

    def run(body: Callable[[], None], init: Callable[[], object] = lambda: None) -> Worker:
        made.append(Worker(body, init))
        return made[-1]

    yield run
    for worker in made:
        worker.close()


def test_an_exit_leaves_its_status_and_its_last_words(start: Start) -> None:
    """And no registers are missed, for there was no crash."""
    evidence = start(lambda: os._exit(3)).end()
    assert (evidence.ending, evidence.exit_code, evidence.phase) == (Ending.EXITED, 3, "loading")
    assert (evidence.frame, evidence.mappings, evidence.missing) == (None, (), ())
    assert evidence.stderr_tail == "ready\n"
    assert (evidence.start_method, evidence.sample_timeout_s) == ("fork", 1.5)
    assert evidence.inherited_files == ("/data/samples.db",)


@pytest.mark.skipif(not can_have_registers(), reason="registers are recorded on x86_64 Linux with glibc only")
def test_a_crash_leaves_registers_libraries_and_the_stack(start: Start) -> None:
    worker = start(lambda: ctypes.memset(0, 1, 1))
    evidence = worker.end()
    assert evidence.exit_code == -signal.SIGSEGV
    assert evidence.frame is not None
    assert evidence.frame.address == 0
    assert [mapping for mapping in evidence.mappings if "libc" in mapping.path]
    assert "test_traces.py" in evidence.python_stack
    assert evidence.pid == worker.pid


@pytest.mark.skipif(not can_have_registers(), reason="registers are recorded on x86_64 Linux with glibc only")
def test_a_breakpoint_is_a_crash(start: Start, tmp_path: Path) -> None:
    """What it left is read as after the others."""
    library = compile_library(tmp_path, BREAKPOINT)
    evidence = start(lambda: ctypes.CDLL(str(library)).stop_here()).end()
    assert evidence.exit_code == -signal.SIGTRAP
    assert evidence.frame is not None
    assert str(library) in {mapping.path for mapping in evidence.mappings}


def test_of_many_threads_the_one_that_crashed_is_told(start: Start) -> None:
    """faulthandler writes it last, after more than fits into a message."""

    def deeper(times: int) -> None:
        time.sleep(600) if times == 0 else deeper(times - 1)

    def crash_here() -> None:
        for _ in range(16):
            threading.Thread(target=deeper, args=(60,), daemon=True).start()
        ctypes.memset(0, 1, 1)

    stack = start(crash_here).end().python_stack
    frames = python_frames.of_stack(stack)
    assert [frame.function for frame in frames if frame.file == __file__][:2] == ["crash_here", "_run"]
    assert stack.startswith("Fatal Python error")
    assert len(stack) <= 16 * 1024


NOT_PYTHONS = """
#include <pthread.h>
static void *crash(void *none) { *(volatile int *)8 = 1; return none; }
void crash_in_thread(void) { pthread_t made; pthread_create(&made, 0, crash, 0); pthread_join(made, 0); }
"""


def test_of_a_crash_in_a_native_thread_no_line_is_told(start: Start, tmp_path: Path) -> None:
    """What Python's threads were doing is in the stack all the same."""
    library = ctypes.CDLL(str(compile_library(tmp_path, NOT_PYTHONS)))
    stack = start(library.crash_in_thread).end().python_stack
    assert "in _run" in stack
    assert python_frames.of_stack(stack) == []


@pytest.mark.skipif(not can_have_registers(), reason="registers are recorded on x86_64 Linux with glibc only")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM])
def test_the_sender_of_a_signal_is_known(start: Start, number: signal.Signals) -> None:
    worker = start(lambda: time.sleep(600))
    worker.wait_until_ready()
    os.kill(worker.pid, number)
    evidence = worker.end()
    assert evidence.exit_code == -number
    assert evidence.frame is not None
    assert evidence.frame.sender_pid == os.getpid()


def test_a_handler_of_a_fatal_signal_that_the_user_sets_is_left_alone(start: Start) -> None:
    """A runtime that was started in worker_init_fn may live on its faults."""

    def fault() -> None:
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(600)

    evidence = start(fault, lambda: signal.signal(signal.SIGSEGV, lambda *_: os._exit(9))).end()
    assert (evidence.exit_code, evidence.python_stack) == (9, "")


def test_a_handler_of_sigterm_is_left_alone(start: Start) -> None:
    """It is the user's to say what comes of it, set before or after us."""

    def handle() -> None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

    evidence = start(handle).end()
    assert (evidence.exit_code, evidence.python_stack) == (9, "")


def test_a_kill_leaves_the_counters_of_before_and_after(start: Start) -> None:
    worker = start(lambda: time.sleep(600))
    worker.wait_until_ready()
    worker.traces.watch(LOADING, time.monotonic())
    os.kill(worker.pid, signal.SIGKILL)
    evidence = worker.end()
    assert evidence.counters_before is not None
    assert evidence.counters_after is not None
    assert evidence.counters_before.cgroup == evidence.counters_after.cgroup
    assert [(reading.unit, reading.position) for reading in evidence.memory] == [(4, 2)]
    assert evidence.missing == ()


def test_the_stack_of_one_that_hangs_is_asked_for(start: Start) -> None:
    worker = start(lambda: time.sleep(600))
    worker.wait_until_ready()
    worker.traces.take_stacks()
    os.kill(worker.pid, signal.SIGKILL)
    evidence = worker.end(Reason.HUNG)
    assert evidence.ending is Ending.HUNG
    assert "test_traces.py" in evidence.python_stack
    assert evidence.threads == 1
    assert abs(time.time() - (evidence.seen_at or 0)) < PATIENCE_S
    assert evidence.missing == ()


def test_of_one_that_blocks_signals_it_is_said_what_is_missing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """And py-spy is asked; here it may not trace."""
    monkeypatch.setattr(hang, "_find_tool", lambda: None)
    worker = start_deaf(start)
    worker.traces.take_stacks()
    os.kill(worker.pid, signal.SIGKILL)
    evidence = worker.end(Reason.HUNG)
    assert evidence.python_stack == ""
    assert [text.split(":")[0] for text in evidence.missing] == ["Python stack", "native stack"]


def start_deaf(start: Start) -> Worker:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.write(2, b"blocked\n")
        time.sleep(600)

    worker = start(block)
    wait_until(lambda: "blocked" in _heard(worker), PATIENCE_S, "a worker that blocks signals")
    return worker


def test_nobody_waits_for_py_spy(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is looked at now and then, and if the worker ends by itself meanwhile, py-spy is ended too."""
    started = tmp_path / "started"
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}; exec sleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setattr(hang, "_find_tool", lambda: str(tool))
    monkeypatch.setattr(hang, "LIMIT_S", 600.0)
    worker = start_deaf(start)
    pidfd = os.pidfd_open(worker.pid)
    before = worker.traces.descriptors

    def is_at_work() -> bool:
        assert not worker.traces.has_stacks(pidfd)
        return started.exists()

    wait_until(is_at_work, PATIENCE_S, "a py-spy that is at work")
    os.close(pidfd)
    assert len(worker.traces.descriptors) > len(before)
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.end(Reason.HUNG).native_stack == ""
    assert not is_running(int(started.read_text()))


def test_without_descriptors_left_a_stack_is_missing_and_that_is_all(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks goes on."""

    def raise_too_many(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    worker = start(lambda: time.sleep(600))
    worker.wait_until_ready()
    monkeypatch.setattr(os, "pidfd_open", raise_too_many)
    worker.traces.take_stacks()
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.end(Reason.HUNG).missing == ("Python stack: Too many open files",)


def _heard(worker: Worker) -> str:
    worker.traces.stderr.take_in()
    return os.pread(worker.screen, 1000, 0).decode()


def test_the_cgroup_is_looked_for_again_once_the_worker_is_ready(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker_init_fn may have moved it; later nobody does."""
    worker = start(lambda: time.sleep(600))
    looks: list[int] = []
    assert worker.traces._memory is not None
    monkeypatch.setattr(worker.traces._memory, "look_again", lambda: looks.append(1))
    for doing in (STARTING, STARTING, LOADING, LOADING):
        worker.traces.watch(doing, time.monotonic())
    assert len(looks) == 1
    os.kill(worker.pid, signal.SIGKILL)
    worker.end()


def test_what_nobody_asks_about_is_let_go(start: Start) -> None:
    worker = start(lambda: None)
    os.waitpid(worker.pid, 0)
    worker.traces.discard()
    assert worker.traces._crash.fd == -1


def test_descriptors_are_those_that_other_workers_must_not_keep() -> None:
    traces = KeptTraces()
    before = traces.descriptors
    assert traces.stderr.fd in before
    assert stderr._STDERR not in before
    traces.discard()
    for fd in before:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_one_that_is_not_traced_is_asked_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """And has an answer to all of it: who starts and watches workers need not know."""
    monkeypatch.setenv("HOLDFAST_DIAGNOSIS", "0")
    traces = make_traces()
    assert not isinstance(traces, KeptTraces)
    ends = pickle.loads(pickle.dumps(traces.ends))
    ends.install(is_forked=False)()
    ends.install_handlers()
    assert (traces.descriptors, traces.kept_here) == ([], [])
    traces.begin(os.getpid())
    traces.watch(LOADING, time.monotonic())
    traces.stderr.name(0)
    assert (traces.stderr.wants_more, traces.stderr.take_in()) == (False, False)
    assert traces.has_stacks(-1)
    traces.take_stacks()
    assert traces.evidence(Reason.HUNG, -9, LOADING, HERE).ending is Ending.HUNG
    traces.discard()
