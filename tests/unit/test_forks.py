"""A fork is over when the child and all that came of it have exited or exec'ed: real children, real pipes."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.transport import forks
from holdfast.transport.forks import ForkGuard
from waits import PATIENCE_S, is_running, wait_until


class Pool:
    """What a pool of slots is to the hooks: something that may be in use."""

    def __init__(self, *, busy: bool = True) -> None:
        self.busy = busy
        self.guards: list[ForkGuard] = []
        forks.watch(self)

    def in_use(self) -> bool:
        return self.busy

    def guard_with(self, guard: ForkGuard) -> None:
        self.guards.append(guard)

    def drop_passed_guards(self) -> None:
        self.guards = [guard for guard in self.guards if not guard.passed()]


class Child:
    """A forked child that runs `work` and then waits until it is told to exit."""

    def __init__(self, work: Callable[[], int] | None = None) -> None:
        ours, self._theirs = os.pipe()
        answer, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):  # nothing of the test session may run on in the child
                os.close(self._theirs)
                os.write(say, b"%d." % (work() if work else 0))
                select.select([ours], [], [], PATIENCE_S)
            os._exit(0)
        os.close(ours)
        os.close(say)
        self.answer = _read_number(answer)

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._theirs, b".")  # closing would not do: a later child has this end too
        os.close(self._theirs)
        wait_until(lambda: os.waitpid(self.pid, os.WNOHANG)[0], PATIENCE_S, "the child's end")


def _read_number(fd: int) -> int:
    """What the child wrote, up to the full stop: a grandchild may hold the pipe for longer."""
    text = b""
    while not text.endswith(b"."):
        assert select.select([fd], [], [], PATIENCE_S)[0], "the child said nothing"
        text += os.read(fd, 1) or b"-1."
    os.close(fd)
    return int(text[:-1])


def open_pipes() -> int:
    links = (str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists())
    return sum(link.startswith("pipe:") for link in links)


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """The table of descriptors is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_guard_passes_when_the_child_is_gone_and_not_before() -> None:
    """While the child lives it may read what it inherited."""
    pool = Pool()
    child = Child()
    (guard,) = pool.guards
    assert not guard.passed()
    assert not guard.passed()
    child.end()
    assert guard.passed()
    assert guard.passed()


def test_a_killed_child_passes_its_guard() -> None:
    """Nothing need run in the child: the kernel closes its end."""
    pool = Pool()
    child = Child()
    os.kill(child.pid, signal.SIGKILL)
    child.end()
    assert pool.guards[0].passed()


def test_a_guard_waits_for_the_childs_own_children() -> None:
    """A grandchild inherited the memory too, and may outlive its parent."""
    pool = Pool()
    hold, let_go = os.pipe()

    def fork_again() -> int:
        pid = os.fork()
        if pid == 0:
            os.close(let_go)
            select.select([hold], [], [], PATIENCE_S)  # until the test process closes its end
            os._exit(0)
        return pid

    child = Child(fork_again)
    os.close(hold)
    (guard,) = pool.guards
    child.end()
    assert is_running(child.answer)
    assert not guard.passed()
    os.close(let_go)
    wait_until(guard.passed, PATIENCE_S, "the guard, after the grandchild's end")
    wait_until(lambda: not is_running(child.answer), PATIENCE_S, "the grandchild's end")


def test_exec_ends_the_guard() -> None:
    """A program that replaced the child has none of our memory, however long it runs."""
    pool = Pool()
    hold, let_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(let_go)
            os.dup2(hold, 0)
            os.execv("/bin/cat", ["cat"])
        os._exit(1)
    os.close(hold)
    (guard,) = pool.guards
    wait_until(guard.passed, PATIENCE_S, "the guard, after exec")
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.close(let_go)
    assert os.waitpid(pid, 0) == (pid, 0)


def test_every_fork_has_a_guard_of_its_own() -> None:
    """The second child does not hold up the guard of the first, nor the other way round."""
    pool = Pool()
    first, second = Child(), Child()
    one, other = pool.guards
    first.end()
    assert one.passed()
    assert not other.passed()
    second.end()
    assert other.passed()


def test_pools_in_use_share_the_guard_of_a_fork_and_idle_ones_have_none() -> None:
    """One pipe per fork, whatever the number of loaders."""
    pools = [Pool(), Pool(), Pool(busy=False)]
    before = open_pipes()
    child = Child()
    assert pools[0].guards == pools[1].guards
    assert pools[2].guards == []
    assert open_pipes() == before + 2  # the guard's, and the test's own to the child
    child.end()
    assert pools[0].guards[0].passed()


def test_a_fork_costs_nothing_while_no_pool_is_in_use() -> None:
    """No pipe, in the parent or in the child."""
    pool = Pool(busy=False)
    before = open_pipes()
    child = Child(open_pipes)
    assert child.answer == before + 2 + 1  # the test's own: one whole pipe to say, one end of the other to wait
    child.end()
    assert open_pipes() == before
    assert pool.guards == []


def test_the_child_keeps_one_descriptor_and_marks_nothing_itself() -> None:
    """The writing end stays in the child; the pools are its parent's, and a fork of its own makes no new guard."""
    pool = Pool()
    before = open_pipes()

    def look_twice() -> int:
        here = open_pipes()
        pid = os.fork()
        if pid == 0:
            os._exit(open_pipes())
        _, status = os.waitpid(pid, 0)
        return here if os.waitstatus_to_exitcode(status) == here else -1

    child = Child(look_twice)
    assert child.answer == before + 1 + 2 + 1  # the guard's end, and the test's own as above
    child.end()
    assert len(pool.guards) == 1


def test_without_descriptors_a_fork_is_taken_to_live_for_ever() -> None:
    """No pipe can be made: then no slot of that moment is ever used again, and nothing else goes wrong."""
    pool = Pool()
    with no_descriptors_left():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    (guard,) = pool.guards
    assert not guard.passed()


def test_a_guard_that_nobody_asks_closes_its_pipe_when_it_goes() -> None:
    """A pool that is dropped while the child lives takes its guards' descriptors along."""
    pool = Pool()
    before = open_pipes()
    child = Child()
    assert open_pipes() == before + 2
    pool.guards.clear()
    assert open_pipes() == before + 1
    child.end()


def test_a_guard_that_has_passed_holds_no_descriptor() -> None:
    """Guards of many forks do not add up."""
    pool = Pool()
    before = open_pipes()
    for _ in range(5):
        Child().end()
    assert open_pipes() == before + 5
    assert all(guard.passed() for guard in pool.guards)
    assert open_pipes() == before


def test_guards_of_forks_that_are_over_can_be_dropped_everywhere() -> None:
    """A closing loader knows that processes have ended: every pool lets go of what watched them."""
    pools = [Pool(), Pool()]
    before = open_pipes()
    gone, alive = Child(), Child()
    gone.end()
    forks.drop_passed_guards()
    assert [len(pool.guards) for pool in pools] == [1, 1]
    assert open_pipes() == before + 2  # of the living child: the guard's, and the test's own
    alive.end()


def test_a_guard_may_be_asked_in_many_threads_at_once() -> None:
    """Two loaders in two threads share the guard of a fork: its descriptor is closed once, and no other one."""
    pool = Pool()
    for _ in range(20):
        Child().end()
        guard = pool.guards.pop()
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(lambda guard: guard.passed(), [guard] * 4))


def test_a_program_that_is_started_needs_no_guard() -> None:
    """subprocess forks and execs at once, without the hooks: its child never reads our memory."""
    pool = Pool()
    subprocess.run([sys.executable, "-S", "-c", ""], check=True, timeout=PATIENCE_S)
    assert pool.guards == []


def test_a_fork_from_another_thread_is_guarded_too() -> None:
    """A user's own thread may fork while the main thread iterates."""
    pool = Pool()
    children: list[Child] = []
    thread = threading.Thread(target=lambda: children.append(Child()))
    thread.start()
    thread.join(PATIENCE_S)
    (guard,) = pool.guards
    assert not guard.passed()
    children[0].end()
    assert guard.passed()


def test_a_pool_that_is_gone_is_not_watched() -> None:
    """The hooks hold pools weakly."""
    pool = Pool()
    guards = pool.guards
    del pool
    Child().end()
    assert guards == []


@pytest.mark.parametrize("count", [1, 3])
def test_the_hooks_run_once_per_fork(count: int) -> None:
    """However many pools were watched before, a fork makes one guard."""
    pools = [Pool() for _ in range(count)]
    Child().end()
    assert [len(pool.guards) for pool in pools] == [1] * count
