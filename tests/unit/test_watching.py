"""Judging from outside whether a worker is still at work: steps that take too long, processes that were stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board_rows import PHASE, Phase
from holdfast.workers import watching
from holdfast.workers.board import Board, Doing, WorkerMemory
from holdfast.workers.channel import MAX_MESSAGE
from holdfast.workers.limits import SLACK_BYTES
from holdfast.workers.watching import (
    STACK_SIGNAL,
    BudgetWatch,
    Deadline,
    EndWatch,
    MemoryCap,
    StackRequest,
    StopWatch,
    tick_s,
)
from waits import PATIENCE_S, wait_until

LIMIT_S = 10.0
TICK_S = 0.5
WATCHED = (Phase.FETCH, Phase.COLLATE, Phase.SEND, Phase.REPLAY)


def doing(phase: Phase = Phase.FETCH, unit: int = 0, position: int = 0, life: int = 1, span: int = 1) -> Doing:
    return Doing(phase, unit, position, life, span)


def ticks_until_over(deadline: Deadline, step: Doing, elapsed_s: float = TICK_S, at_most: int = 1000) -> int | None:
    """How many looks at the same step it takes; None if it is never over."""
    return next((k for k in range(1, at_most) if deadline.is_over(step, elapsed_s)), None)


# --- how often to look ----------------------------------------------------------------------------------------------


def test_memory_is_looked_at_more_often() -> None:
    assert tick_s(None, watches_memory=True) == 0.2
    assert tick_s(0.1, watches_memory=True) == pytest.approx(0.02)


@pytest.mark.parametrize(("limit_s", "expected"), [(None, 0.5), (60.0, 0.5), (2.5, 0.5), (1.0, 0.2), (0.1, 0.02)])
def test_the_shorter_the_deadline_the_closer_the_look(limit_s: float | None, expected: float) -> None:
    """Five times within it, and at least twice a second: stops are looked for, too."""
    assert tick_s(limit_s) == pytest.approx(expected)


# --- deadlines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", WATCHED)
def test_a_step_may_take_as_long_as_the_limit_and_no_longer(phase: Phase) -> None:
    """Counted from the first look that saw it: 20 ticks of half a second are ten seconds, the 22nd look is over."""
    assert ticks_until_over(Deadline(LIMIT_S), doing(phase)) == 22


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in WATCHED])
def test_what_is_no_step_of_a_sample_is_not_timed(phase: Phase) -> None:
    """Waiting for work, starting, or waiting for another attempt."""
    assert ticks_until_over(Deadline(LIMIT_S), doing(phase)) is None


def test_without_a_limit_nothing_is_timed() -> None:
    """sample_timeout=None."""
    assert ticks_until_over(Deadline(None), doing()) is None


def test_a_step_about_many_samples_may_take_as_many_times_as_long() -> None:
    """`__getitems__` of 4, or the collation of 4."""
    assert ticks_until_over(Deadline(LIMIT_S), doing(position=-1, span=4)) == 4 * 20 + 2
    assert ticks_until_over(Deadline(LIMIT_S), doing(span=0)) == 22


@pytest.mark.parametrize(
    "other", [doing(Phase.COLLATE), doing(unit=1), doing(position=1), doing(life=2), doing(span=2)], ids=repr
)
def test_any_change_of_the_row_is_progress(other: Doing) -> None:
    """Another phase, sample, unit or life: the count begins anew, and so does that of the first when it comes back."""
    deadline = Deadline(LIMIT_S)
    for step in (doing(), other, doing()):
        assert not any(deadline.is_over(step, TICK_S) for _ in range(20))


def test_time_in_a_phase_that_is_not_timed_does_not_count() -> None:
    """A minute of waiting between two attempts at the same sample."""
    deadline = Deadline(LIMIT_S)
    assert not any(deadline.is_over(doing(), TICK_S) for _ in range(20))
    assert not any(deadline.is_over(doing(Phase.BACKOFF), TICK_S) for _ in range(120))
    assert ticks_until_over(deadline, doing()) == 22


def test_a_watcher_that_was_suspended_itself_does_not_see_a_hang() -> None:
    """A laptop that slept for an hour: the time since the last look is capped to a tick by who calls, as here."""
    deadline = Deadline(LIMIT_S)
    for wall_s in (TICK_S, TICK_S, 3600.0, TICK_S):
        assert not deadline.is_over(doing(), min(wall_s, tick_s(LIMIT_S)))


@given(
    limit_s=st.floats(0.01, 100),
    steps=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 0.5), st.integers(1, 3)), max_size=60),
)
def test_a_deadline_is_the_sum_of_what_was_seen_of_one_step(
    limit_s: float, steps: list[tuple[int, float, int]]
) -> None:
    """Added up anew from the whole history."""
    deadline, run_s, last = Deadline(limit_s), 0.0, None
    for position, elapsed_s, span in steps:
        step = doing(position=position, span=span)
        run_s = run_s + elapsed_s if step == last else 0.0
        last = step
        assert deadline.is_over(step, elapsed_s) == (run_s > limit_s * span)


# --- stopped processes ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def child(program: str, *fds: int) -> Iterator[int]:
    """A child that runs the program, from when it says that it is ready; its pidfd."""
    source = textwrap.dedent(program) + "\nprint('ready', flush=True)\nwait()\n"
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, pass_fds=fds)
    pidfd = os.pidfd_open(process.pid)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield pidfd
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()  # type: ignore[union-attr]
        os.close(pidfd)


SLEEPS = "import time\ndef wait():\n    time.sleep(1000)"


def test_a_child_that_runs_is_not_stopped() -> None:
    """However long it is watched."""
    with child(SLEEPS) as pidfd:
        watch = StopWatch(pidfd)
        assert not any(watch.is_over(TICK_S) for _ in range(20))


def test_a_child_that_was_stopped_and_not_continued_is_over() -> None:
    """After a grace of ten seconds of the watcher's ticks."""
    with child(SLEEPS) as pidfd:
        watch = StopWatch(pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        wait_until(lambda: watch.is_over(0.1), PATIENCE_S, "the stop")
        assert watch.is_over(0.0)


def test_a_child_that_is_continued_within_the_grace_is_well() -> None:
    """And the next stop has the whole grace again."""
    with child(SLEEPS) as pidfd:
        watch = StopWatch(pidfd)
        for _ in range(3):
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
            wait_until(lambda: watch.is_over(0.0) or watch.is_stopped, PATIENCE_S, "the stop")
            assert not watch.is_over(9.9)
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            wait_until(lambda: not (watch.is_over(0.0) or watch.is_stopped), PATIENCE_S, "the continuation")


def test_stopped_and_continued_between_two_looks_is_nothing() -> None:
    """Only the last news counts."""
    with child(SLEEPS) as pidfd:
        watch = StopWatch(pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        os.waitid(os.P_PIDFD, pidfd, os.WSTOPPED | os.WNOWAIT)
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        os.waitid(os.P_PIDFD, pidfd, os.WCONTINUED | os.WNOWAIT)
        assert not any(watch.is_over(TICK_S) for _ in range(5))


def test_a_child_that_is_dead_is_not_stopped_and_stays_to_be_reaped() -> None:
    """Its exit status is for who buries it."""
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    pidfd = os.pidfd_open(process.pid)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    watch = StopWatch(pidfd)
    assert not any(watch.is_over(TICK_S) for _ in range(5))
    assert process.wait(PATIENCE_S) == 7
    assert not watch.is_over(TICK_S)
    os.close(pidfd)


# --- stacks ---------------------------------------------------------------------------------------------------------

DUMPS = f"""
    import faulthandler, threading, time
    faulthandler.register({int(STACK_SIGNAL)}, file=FD, all_threads=True)

    def in_a_thread():
        time.sleep(1000)

    threading.Thread(target=in_a_thread, daemon=True).start()  # not later: faulthandler may crash while one starts

    def wait():
        hung_here()

    def hung_here():
        time.sleep(1000)
"""


@pytest.fixture
def stacks() -> Iterator[int]:
    fd = os.memfd_create("stacks")
    yield fd
    os.close(fd)


def take_stack(pidfd: int, file: int) -> str:
    return the_answer(StackRequest(pidfd, file))


def the_answer(request: StackRequest) -> str:
    answers = [""]

    def is_answered() -> bool:
        answer = request.answer()
        answers.append(answer or "")
        return answer is not None

    wait_until(is_answered, PATIENCE_S, "an answer, or that there is none")
    return answers[-1]


def test_the_stacks_of_all_threads_are_taken_each_time_anew(stacks: int) -> None:
    """From the file that the child writes them to; it goes on, and what it wrote before is not told again."""
    with child(DUMPS.replace("FD", str(stacks)), stacks) as pidfd:
        wait_until(lambda: "in hung_here" in take_stack(pidfd, stacks), PATIENCE_S, "the stack")
        wait_until(lambda: "in in_a_thread" in take_stack(pidfd, stacks), PATIENCE_S, "the thread's stack")
        assert os.pread(stacks, 1 << 20, 0).count(b"in hung_here") >= 2


MANY_DEEP_THREADS = f"""
    import faulthandler, threading, time
    faulthandler.register({int(STACK_SIGNAL)}, file=FD, all_threads=True)

    def deeper(times):
        time.sleep(1000) if times == 0 else deeper(times - 1)

    for _ in range(30):
        threading.Thread(target=deeper, args=(80,), daemon=True).start()

    def wait():
        hung_here()

    def hung_here():
        time.sleep(1000)
"""


def test_of_very_many_stacks_as_much_is_taken_as_fits_into_a_message(stacks: int) -> None:
    """The main thread's, which is the one that hangs, is among them."""
    with child(MANY_DEEP_THREADS.replace("FD", str(stacks)), stacks) as pidfd:
        wait_until(lambda: "in hung_here" in take_stack(pidfd, stacks), PATIENCE_S, "the stack")
        taken = take_stack(pidfd, stacks)
        assert "in hung_here" in taken
        assert len(taken) <= MAX_MESSAGE / 2 < os.fstat(stacks).st_size


def test_of_a_child_that_writes_nothing_there_is_no_stack_and_no_long_wait(stacks: int) -> None:
    """Stopped, or stuck in the kernel: it is ended without."""
    with child(DUMPS.replace("FD", str(stacks)), stacks) as pidfd:
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        os.waitid(os.P_PIDFD, pidfd, os.WSTOPPED | os.WNOWAIT)
        assert take_stack(pidfd, stacks) == ""


def test_who_was_held_up_himself_does_not_give_up(stacks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the whole machine stood still: by the clock there was time to answer, but none to run in."""
    clock, stood_still_s = watching.time.monotonic, [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock() + stood_still_s[0])
    with child(DUMPS.replace("FD", str(stacks)), stacks) as pidfd:
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        os.waitid(os.P_PIDFD, pidfd, os.WSTOPPED | os.WNOWAIT)
        request = StackRequest(pidfd, stacks)
        stood_still_s[0] = 3600.0
        assert request.answer() is None
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        assert "most recent call first" in the_answer(request)


def test_of_a_long_stack_the_end_is_taken(stacks: int) -> None:
    """It has to fit into a message; the main thread's stack is the last."""
    program = f"""
        import os, signal, time

        def write(*_):
            os.write({stacks}, b"x" * 100_000 + b"the main thread")

        signal.signal({int(STACK_SIGNAL)}, write)

        def wait():
            time.sleep(1000)
    """
    with child(program, stacks) as pidfd:
        stack = take_stack(pidfd, stacks)
    assert stack.endswith("the main thread")
    assert len(stack) < 60_000


def test_of_a_child_that_is_gone_there_is_no_stack(stacks: int) -> None:
    """It died between the look and the signal."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    pidfd = os.pidfd_open(process.pid)
    process.wait(PATIENCE_S)
    assert take_stack(pidfd, stacks) == ""
    os.close(pidfd)


# --- too much memory ------------------------------------------------------------------------------------------------

MOST = 1000 << 20
START = 300 << 20
READY = WorkerMemory(born=0, peak=0, kept=0, start=START)


class Memory:
    """Stands for what /proc says of a process, in bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.anonymous: int | None = START
        self.shared = self.own_shared = 0
        self.close_looks = 0
        monkeypatch.setattr(watching.readings, "anonymous_bytes", lambda pid: self.anonymous)
        monkeypatch.setattr(watching.readings, "shared_memory_bytes", lambda pid: self.shared)
        monkeypatch.setattr(watching.smaps, "own_shared_memory_bytes", self._look_closely)

    def _look_closely(self, pid: int) -> int:
        self.close_looks += 1
        return self.own_shared


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(monkeypatch)


def test_memory_is_counted_from_when_the_worker_was_ready(memory: Memory) -> None:
    """What it had by then is not counted, and before that nothing is."""
    cap = MemoryCap(1, MOST)
    memory.anonymous = START + MOST + SLACK_BYTES
    assert not cap.is_over(READY, doing())
    assert cap.used_bytes == MOST + SLACK_BYTES
    memory.anonymous += 1
    assert cap.is_over(READY, doing())
    assert not cap.is_over(WorkerMemory(0, 0, 0), doing())


def test_without_a_limit_no_memory_is_too_much(memory: Memory) -> None:
    memory.anonymous = 1 << 50
    assert not MemoryCap(1, None).is_over(READY, doing())


def test_a_worker_that_is_gone_is_not_over(memory: Memory) -> None:
    memory.anonymous = None
    assert not MemoryCap(1, MOST).is_over(READY, doing())


def test_shared_memory_counts_if_it_is_its_own(memory: Memory) -> None:
    """Seen within five looks."""
    cap = MemoryCap(1, MOST)
    memory.shared = 4 * MOST
    assert not any(cap.is_over(READY, doing()) for _ in range(20))
    memory.shared, memory.own_shared = 6 * MOST, 2 * MOST
    assert any(cap.is_over(READY, doing()) for _ in range(5))


def test_slots_that_fill_are_looked_at_closely_a_few_times_only(memory: Memory) -> None:
    """It takes milliseconds each time."""
    cap = MemoryCap(1, MOST)
    for memory.shared in range(0, 2 * MOST, MOST // 1000):
        assert not cap.is_over(READY, doing())
    assert not any(cap.is_over(READY, doing()) for _ in range(1000))
    assert memory.close_looks <= 8


def test_shared_memory_that_was_given_back_meanwhile_is_not_held_against_it(memory: Memory) -> None:
    cap = MemoryCap(1, MOST)
    memory.shared = memory.own_shared = MOST
    assert not any(cap.is_over(READY, doing()) for _ in range(5))
    memory.shared = memory.own_shared = 0
    memory.anonymous = START + MOST // 2
    assert not cap.is_over(READY, doing())


@pytest.mark.parametrize("rest", [Phase.IDLE, Phase.HAND_OVER, Phase.FETCH])
def test_what_a_worker_kept_is_what_it_had_at_rest_or_at_an_earlier_unit(memory: Memory, rest: Phase) -> None:
    """And not what the unit in hand took since."""
    cap = MemoryCap(1, MOST)
    assert not cap.is_over(READY, doing(Phase.FETCH, unit=0))
    memory.anonymous = START + MOST // 2
    assert not cap.is_over(READY, doing(rest, unit=1))
    memory.anonymous = START + 2 * MOST
    assert cap.is_over(READY, doing(Phase.FETCH, unit=2))
    assert cap.is_over(READY, doing(Phase.FETCH, unit=2))
    assert cap.kept_bytes == MOST // 2


@pytest.mark.parametrize("unit", [0, -3], ids=["first unit", "run again"])
def test_a_worker_that_has_finished_nothing_has_kept_nothing(memory: Memory, unit: int) -> None:
    """Also one that ran an iterable up to where it was, whatever that took."""
    cap = MemoryCap(1, MOST)
    phase = Phase.REPLAY if unit < 0 else Phase.FETCH
    for seen in (doing(Phase.IDLE, unit=-1), doing(phase, unit=unit), doing(phase, unit=unit), doing(unit=0)):
        memory.anonymous = (memory.anonymous or 0) + MOST
        cap.is_over(READY, seen)
    assert cap.kept_bytes == 0


def test_what_it_says_itself_that_it_kept_is_believed(memory: Memory) -> None:
    """Two units within a tick: nobody has seen it at rest."""
    cap = MemoryCap(1, MOST)
    memory.anonymous = START + 2 * MOST
    assert cap.is_over(READY._replace(kept=START + MOST // 2), doing(unit=1))
    assert cap.kept_bytes == MOST // 2


@pytest.mark.parametrize("looks", [5, 10])
def test_shared_memory_that_any_of_several_units_took_is_not_held_against_the_last(memory: Memory, looks: int) -> None:
    """It is looked at once in five times: a worker that has finished units since may have kept all there is."""
    cap, finished = MemoryCap(1, MOST), READY._replace(kept=START)
    are_over = []
    for unit in range(looks):
        memory.shared = memory.own_shared = 2 * MOST * (unit + 1) // looks
        are_over.append(cap.is_over(finished, doing(unit=unit)))
    assert are_over == [False] * (looks - 1) + [True]
    assert cap.kept_bytes == cap.used_bytes == 2 * MOST


def test_shared_memory_that_one_unit_took_is_held_against_it(memory: Memory) -> None:
    """The worker has finished nothing, or it was looked at since it took this one."""
    first, later = MemoryCap(1, MOST), MemoryCap(1, MOST)
    memory.shared = memory.own_shared = MOST // 2
    assert not any(later.is_over(READY._replace(kept=START), doing(unit=1)) for _ in range(5))
    memory.shared = memory.own_shared = 2 * MOST
    assert any(first.is_over(READY, doing(unit=0)) for _ in range(5))
    assert any(later.is_over(READY._replace(kept=START), doing(unit=1)) for _ in range(5))
    assert (first.kept_bytes, later.kept_bytes) == (0, MOST // 2)


# --- too much memory together -----------------------------------------------------------------------------------------

BUDGET = 1000 << 20
MB = 1 << 20


@contextlib.contextmanager
def three_workers() -> Iterator[Board]:
    """Each was born with 100 MB that are not its own; the last one is waiting for work."""
    board = Board.create(3)
    for worker_id, phase in enumerate((Phase.FETCH, Phase.COLLATE, Phase.IDLE)):
        board.reset(worker_id, 1, 100 * MB)
        board.row(worker_id)[PHASE] = phase
    yield board
    board.close()


def test_the_one_that_has_most_of_those_that_load_is_one_too_many() -> None:
    watch = BudgetWatch(BUDGET)
    with three_workers() as board:
        assert watch.find_one_too_many(board, {0: 400 * MB, 1: 500 * MB, 2: 400 * MB}) is None
        assert watch.find_one_too_many(board, {0: 400 * MB, 1: 500 * MB, 2: 900 * MB}) == 1
        assert watch.used_bytes == {0: 300 * MB, 1: 400 * MB, 2: 800 * MB}


def test_slots_count() -> None:
    watch = BudgetWatch(BUDGET)
    with three_workers() as board:
        board.set_slot_bytes(900 * MB)
        assert watch.find_one_too_many(board, {0: 200 * MB, 1: 150 * MB, 2: None}) is None
        assert watch.find_one_too_many(board, {0: 250 * MB, 1: 150 * MB, 2: None}) == 0


def test_what_a_worker_had_that_was_ended_is_known_whoever_looks_until_it_is_reaped() -> None:
    """A tick between the kill and the burial finds a process that has nothing any more."""
    watch = BudgetWatch(BUDGET)
    with three_workers() as board:
        assert watch.find_one_too_many(board, {0: 400 * MB, 1: 1500 * MB, 2: 200 * MB}) == 1
        for now in (0, None):
            watch.find_one_too_many(board, {0: 400 * MB, 1: now, 2: 200 * MB})
        assert (watch.had_bytes(0), watch.had_bytes(1)) == (300 * MB, 1400 * MB)
        watch.find_one_too_many(board, {0: 400 * MB, 1: 150 * MB, 2: 200 * MB})
        assert watch.had_bytes(1) == 50 * MB, "that of the next life"


def test_without_a_budget_none_is_too_many() -> None:
    with three_workers() as board:
        assert BudgetWatch(None).find_one_too_many(board, {0: 1 << 50}) is None


def test_one_that_only_waits_is_not_ended() -> None:
    """What it keeps is a matter for who gives out work."""
    with three_workers() as board:
        assert BudgetWatch(BUDGET).find_one_too_many(board, {2: 1 << 40}) is None


# --- on the way out ---------------------------------------------------------------------------------------------------


def test_a_worker_may_take_a_while_to_end_and_no_longer() -> None:
    watch = EndWatch()
    assert not any(watch.is_over(doing(Phase.IDLE), TICK_S) for _ in range(100))
    assert next(k for k in range(1, 100) if watch.is_over(doing(Phase.ENDING), TICK_S)) == 7
