"""What our pool does beyond the standard library's: deaths, limits, retries, arrays, and how it ends."""

from __future__ import annotations

import concurrent.futures
import functools
import gc
import multiprocessing
import os
import signal
import sys
import time
import weakref
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import calls
import holdfast
from calls import METHODS, ours
from helpers import run_program
from holdfast import ProcessPoolExecutor, WorkerCrashed, WorkerTimeout
from hungry import fill_gaps
from waits import CLOSE_DEADLINE_S, PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(150)

DEATHS = ("SIGKILL", "SIGSEGV", "SIGABRT", "os._exit", "null pointer")


# -- deaths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_worker_fails_its_call_and_no_other(how: str) -> None:
    """Calls before it, beside it and after it all return; the error names the call, and carries its incident."""
    with ProcessPoolExecutor(2) as pool:
        before = [pool.submit(calls.square, number) for number in range(20)]
        dead = pool.submit(calls.die, how)
        after = [pool.submit(calls.square, number) for number in range(50)]
        error = dead.exception(PATIENCE_S)
        assert [future.result(PATIENCE_S) for future in before + after] == [n * n for n in [*range(20), *range(50)]]
        assert isinstance(error, WorkerCrashed)
        assert f"while running die('{how}')" in str(error)
        assert error.incident is pool.incidents[0]
        assert (error.incident.done, pool.restarts) == ("raised", 1)
        assert "dataset" not in str(error)
        assert "sample" not in str(error)


def test_many_deaths_cost_as_many_calls() -> None:
    """Every fifth call dies: all others come."""
    with ProcessPoolExecutor(3) as pool:
        futures = [pool.submit(calls.die_at, number % 5 and -1, "os._exit", 0) for number in range(25)]
        kinds = [type(future.exception(PATIENCE_S)).__name__ for future in futures]
    assert kinds == ["WorkerCrashed" if number % 5 == 0 else "NoneType" for number in range(25)]


def test_a_worker_that_dies_idle_costs_nothing() -> None:
    """Killed from outside between two calls: it is replaced, and an incident says so."""
    with ProcessPoolExecutor(1) as pool:
        pid = pool.submit(calls.pid_of_worker).result(PATIENCE_S)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pool.incidents, PATIENCE_S, "the incident")
        assert pool.submit(calls.pid_of_worker).result(PATIENCE_S) != pid
        assert pool.incidents[0].done == "restarted"


def test_a_killed_supervisor_costs_the_calls_that_had_begun(tmp_path: Path) -> None:
    """All workers go with it. What had not begun is run by the new ones."""
    with ProcessPoolExecutor(2) as pool:
        lost = pool.submit(calls.kill_supervisor)
        others = [pool.submit(calls.square, number) for number in range(30)]
        error = lost.exception(PATIENCE_S)
        assert isinstance(error, WorkerCrashed)
        assert str(error).startswith("supervisor (pid ")
        failed = [future for future in others if future.exception(PATIENCE_S) is not None]
        assert len(failed) <= 1, "at most what the other worker had begun"
        assert pool.submit(calls.square, 9).result(PATIENCE_S) == 81


def test_a_retried_call_survives(tmp_path: Path) -> None:
    """`max_retries` for the pool, and for one call; the incident says what was done."""
    with ProcessPoolExecutor(1, max_retries=1) as pool:
        assert pool.submit(calls.die_once, tmp_path / "a", "SIGKILL").result(PATIENCE_S) == "survived"
        assert [incident.done for incident in pool.incidents] == ["retried"]
    with ProcessPoolExecutor(1) as pool:
        patient = pool.options(max_retries=2)
        assert patient.submit(calls.die_once, tmp_path / "b", "os._exit").result(PATIENCE_S) == "survived"
        error = patient.submit(calls.die, "os._exit").exception(PATIENCE_S)
        assert isinstance(error, WorkerCrashed)
        assert "attempt 3 of 3" in str(error)


def test_an_initializer_that_dies_breaks_the_pool() -> None:
    """No worker can ever be ready: every future says so, as the standard library's would."""
    with ProcessPoolExecutor(2, initializer=calls.die_in_initializer) as pool:
        futures = [pool.submit(calls.square, number) for number in range(5)]
        for future in futures:
            error = future.exception(PATIENCE_S)
            assert isinstance(error, BrokenProcessPool)
            assert isinstance(error, holdfast.WorkerInitError)
            assert "exited with status 4" in str(error)


def test_an_exception_that_ends_the_standard_librarys_pool_is_one_calls_own() -> None:
    """Its constructor cannot be called again: it is rebuilt without."""
    with ProcessPoolExecutor(1) as pool:
        error = pool.submit(calls.fail_oddly).exception(PATIENCE_S)
        assert isinstance(error, calls.OddError)
        assert (str(error), error.code) == ("5 odd", 5)
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_call_past_its_timeout_is_ended() -> None:
    """Its worker is gone, with its stack in the message; calls within their time are not touched."""
    with ProcessPoolExecutor(2, timeout=0.5) as pool:
        hung = pool.submit(calls.die, "hang")
        assert pool.submit(calls.square, 4).result(PATIENCE_S) == 16
        error = hung.exception(PATIENCE_S)
        assert isinstance(error, WorkerTimeout)
        assert "calls.py" in str(error)
        assert "timeout=0.5 passed" in str(error)
        assert (pool.submit(calls.square, 5).result(PATIENCE_S), pool.restarts) == (25, 1)


def test_a_call_past_its_timeout_is_retried(tmp_path: Path) -> None:
    """As one that cost its worker in another way; each attempt has all of the time."""
    with ProcessPoolExecutor(1) as pool:
        patient = pool.options(timeout=0.5, max_retries=1)
        assert patient.submit(calls.die_once, tmp_path / "mark", "hang").result(PATIENCE_S) == "survived"
        error = patient.submit(calls.die, "hang").exception(PATIENCE_S)
        assert isinstance(error, WorkerTimeout)
        assert "attempt 2 of 2" in str(error)
        assert [incident.done for incident in pool.incidents] == ["retried", "retried", "raised"]


@pytest.mark.parametrize("method", METHODS)
def test_options_are_for_the_calls_that_are_made_through_them(method: str) -> None:
    """A shorter timeout, a longer one, none at all; the pool's own stays what it was."""
    with ours(method)(2, timeout=30.0) as pool:
        assert isinstance(pool, ProcessPoolExecutor)
        hung = pool.options(timeout=0.3).submit(calls.die, "hang")
        slow = pool.options(timeout=None).submit(time.sleep, 0.8)
        assert "timeout=0.3 passed" in str(hung.exception(PATIENCE_S))
        assert slow.result(PATIENCE_S) is None
        assert pool.options(timeout=20.0).options(max_retries=3)._limits.timeout == 20.0


def test_one_call_may_have_a_memory_limit_of_its_own() -> None:
    """Its MemoryError names that limit; the next call of the same worker may take what it likes."""
    with ProcessPoolExecutor(1) as pool:
        strict = pool.options(memory_limit="200MB")
        error = strict.submit(take_memory, 500_000_000).exception(PATIENCE_S)
        assert isinstance(error, MemoryError)
        assert "over memory_limit (200 MB)" in error.incident.summary  # type: ignore[attr-defined]
        assert strict.submit(take_memory, 1000).result(PATIENCE_S) == 1000
        assert pool.submit(take_memory, 500_000_000).result(PATIENCE_S) == 500_000_000
        assert pool.restarts == 0


def test_a_call_over_its_own_memory_limit_in_shared_memory_is_ended() -> None:
    """What the kernel does not refuse is seen from outside."""
    with ProcessPoolExecutor(1) as pool:
        error = pool.options(memory_limit="100MB").submit(take_shared_memory, 600_000_000).exception(PATIENCE_S)
        assert isinstance(error, holdfast.WorkerOutOfMemory)
        assert error.incident is not None
        assert error.incident.cause == "over memory_limit"
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4


@pytest.mark.parametrize("method", ["fork", "portable"])
def test_one_call_may_be_without_the_pools_memory_limit(method: str) -> None:
    """As one may be without its timeout. The next call of the same worker has the limit again."""
    with ours(method)(1, memory_limit="200MB") as pool:
        assert isinstance(pool, ProcessPoolExecutor)
        free = pool.options(memory_limit=None)
        assert free.submit(take_memory_for_a_while, 500_000_000).result(PATIENCE_S) == 500_000_000
        error = pool.submit(take_memory, 500_000_000).exception(PATIENCE_S)
        assert isinstance(error, MemoryError)
        assert "over memory_limit (200 MB)" in error.incident.summary  # type: ignore[attr-defined]
        assert pool.restarts == 0


def take_memory_for_a_while(nbytes: int) -> int:
    """Longer than it takes to be seen from outside."""
    memory = np.ones(nbytes, dtype=np.uint8)
    time.sleep(1.5)
    return int(memory.sum())


def take_memory(nbytes: int) -> int:
    filling = fill_gaps()  # so that what it takes is new to the kernel
    total = int(np.ones(nbytes, dtype=np.uint8).sum())
    del filling
    return total


def take_shared_memory(nbytes: int) -> None:
    import mmap

    memory = mmap.mmap(-1, nbytes)
    for start in range(0, nbytes, 4096):
        memory[start] = 1
    calls.die("hang")


def test_a_chunk_has_the_time_of_its_items() -> None:
    """Four items of 0.2 s each, in one chunk, under a timeout of half a second for each."""
    with ProcessPoolExecutor(1, timeout=0.5) as pool:
        assert list(pool.map(time.sleep, [0.2] * 4, chunksize=4)) == [None] * 4


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"timeout": 0}, "timeout=0 must be a number of seconds above 0"),
        ({"timeout": "5"}, "timeout='5' must be a number of seconds above 0"),
        ({"max_retries": -1}, "max_retries=-1 must be a whole number"),
        ({"memory_limit": "much"}, "memory_limit='much'"),
        ({"backend": "cloud"}, "backend='cloud' is not known"),
    ],
)
def test_wrong_limits_are_refused(wrong: dict[str, Any], said: str) -> None:
    """At once, and by name."""
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        ProcessPoolExecutor(1, **wrong)


@pytest.mark.parametrize("forever", [float(sys.maxsize), sys.float_info.max])
def test_a_timeout_may_be_as_long_as_anybody_likes(forever: float) -> None:
    """It is no limit then, and none that a number on its way there cannot hold."""
    with ProcessPoolExecutor(1, timeout=forever) as pool:
        assert list(pool.map(calls.square, range(4), chunksize=2)) == [0, 1, 4, 9]


def test_max_tasks_per_child_replaces_workers_without_loss() -> None:
    """Also under fork, where the standard library refuses it: ours are not forks of the main process in mid-step."""
    with ProcessPoolExecutor(1, max_tasks_per_child=3) as pool:
        pids = [pool.submit(calls.pid_of_worker).result(PATIENCE_S) for _ in range(9)]
        assert [len(set(pids[k : k + 3])) for k in (0, 3, 6)] == [1, 1, 1]
        assert len(set(pids)) == 3
        assert (pool.restarts, len(pool.incidents)) == (0, 0)


# -- what waits behind a call that takes long --------------------------------------------------------------------------


def test_a_call_does_not_wait_behind_one_that_takes_long(tmp_path: Path) -> None:
    """After many short calls workers are given more than one; should one then take for ever, what waits behind it is
    taken back and run by another.
    """
    gate = tmp_path / "gate"
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(calls.square, range(500)))
        slow = pool.submit(calls.wait_for, gate)
        quick = [pool.submit(calls.square, number) for number in range(200)]
        assert [future.result(PATIENCE_S) for future in quick] == [number * number for number in range(200)]
        assert not slow.done()
        gate.touch()
        assert slow.result(PATIENCE_S) == "done"


def test_no_call_is_run_twice_or_left_out(tmp_path: Path) -> None:
    """Short ones, long ones and calls taken back: each leaves its mark once."""
    with ProcessPoolExecutor(3) as pool:
        pool_calls = [pool.submit(leave_mark, tmp_path / str(number), number) for number in range(600)]
        assert [future.result(PATIENCE_S) for future in pool_calls] == list(range(600))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {str(k): "x" for k in range(600)}


def leave_mark(path: Path, number: int) -> int:
    with path.open("a") as file:
        file.write("x")
    if number % 97 == 96:
        time.sleep(0.15)
    return number


# -- arrays and tensors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [10, 1000, 3_000_000])
def test_arrays_and_tensors_travel_both_ways(method: str, size: int) -> None:
    """Small ones in the message, large ones in slots; they can be written to, here and there."""
    with ours(method)(1) as pool:
        for _ in range(3):
            array = pool.submit(calls.double, np.arange(size)).result(PATIENCE_S)
            tensor = pool.submit(torch.mul, torch.arange(size), 3).result(PATIENCE_S)
            assert np.array_equal(array, np.arange(size) * 2)
            assert torch.equal(tensor, torch.arange(size) * 3)
            array += 1
            tensor += 1
        both = pool.submit(calls.describe, np.ones(2000), k=torch.ones(2000)).result(PATIENCE_S)
        assert both.startswith("(array([1., 1., 1.")


def test_what_a_worker_does_to_an_argument_stays_there() -> None:
    """The caller's array is not touched, though the worker had no copy of its own."""
    array = np.zeros(100_000)
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(calls.overwrite, array).result(PATIENCE_S) == -1
    assert array.sum() == 0


def test_a_retried_call_gets_its_arguments_as_they_were(tmp_path: Path) -> None:
    """What the first attempt did to them is forgotten with it."""
    with ProcessPoolExecutor(1, max_retries=1) as pool:
        result = pool.submit(overwrite_and_die, np.zeros(100_000), tmp_path / "mark")
        assert result.result(PATIENCE_S) == 0.0


def overwrite_and_die(array: Any, mark: Path) -> float:
    seen = float(array.sum())
    array[:] = 5
    calls.die_once(mark, "SIGKILL")
    return seen


@pytest.mark.parametrize("make", [np.full, torch.full], ids=["numpy", "torch"])
def test_an_argument_that_a_worker_keeps_is_not_overwritten(make: Any) -> None:
    """Later calls, of that worker or another, do not show in what the user's code has kept."""
    with ProcessPoolExecutor(1) as pool:
        for number in range(12):
            kept = pool.submit(calls.keep, make((50_000,), float(number))).result(PATIENCE_S)
            assert kept == [float(k) for k in range(number + 1)]


def test_a_result_that_the_caller_keeps_is_not_overwritten() -> None:
    """Every result of many, kept."""
    with ProcessPoolExecutor(2) as pool:
        kept = list(pool.map(calls.double, [np.full(50_000, number) for number in range(30)]))
    assert [int(array[0]) for array in kept] == [2 * number for number in range(30)]
    assert all(len(set(array)) == 1 for array in kept)


def test_a_result_can_be_an_argument_again() -> None:
    """Through the workers and back, again and again: a slot is read while another is written."""
    array = np.ones(200_000)
    with ProcessPoolExecutor(2) as pool:
        for _ in range(10):
            array = pool.submit(calls.double, array).result(PATIENCE_S)
    assert set(array) == {1024.0}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.usefixtures("sharer_stopped")
def test_what_is_shared_is_not_copied(method: str) -> None:
    """An array, a slice of it, a tensor and a list of `share()` travel as handles, and are what they were."""
    array, tensor = holdfast.share(np.arange(500_000)), holdfast.share(torch.arange(500_000))
    with ours(method)(1) as pool:
        for value, total in ((array, 124999750000), (array[10:20], 145), (tensor, 124999750000)):
            assert pool.submit(sum_in_place, value).result(PATIENCE_S) == (total, True)
        assert pool.submit(len, holdfast.share(["a"] * 1000)).result(PATIENCE_S) == 1000


def sum_in_place(value: Any) -> tuple[int, bool]:
    """The sum, and whether it is seen where it was shared."""
    from holdfast.sharing.segment import address_of, is_in_a_segment

    array = value.numpy() if isinstance(value, torch.Tensor) else value
    return int(array.sum()), is_in_a_segment(address_of(array), array.nbytes)


# -- closing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("state", ["asleep", "C loop", "deaf"])
def test_workers_can_be_ended_whatever_they_do(method: str, state: str) -> None:
    """What had begun fails, what had not is cancelled, and it does not take long."""
    pool = ours(method)(1)
    assert isinstance(pool, ProcessPoolExecutor)
    pool.submit(calls.square, 1).result(PATIENCE_S)
    busy, waiting = pool.submit(stay, state), pool.submit(calls.square, 2)
    wait_until(busy.running, PATIENCE_S)
    start = time.monotonic()
    pool.terminate_workers()
    assert time.monotonic() - start < CLOSE_DEADLINE_S
    assert isinstance(busy.exception(0), BrokenProcessPool)
    assert waiting.cancelled() or isinstance(waiting.exception(0), BrokenProcessPool)


def stay(state: str) -> None:
    from helpers import stay as never_return

    never_return(state)


@pytest.mark.long
def test_closing_is_bounded_although_a_thread_of_the_users_does_not_end() -> None:
    """A worker whose exit hangs is ended after a grace."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(hang_at_exit).result(PATIENCE_S)
        start = time.monotonic()
    assert time.monotonic() - start < CLOSE_DEADLINE_S


def hang_at_exit() -> None:
    import threading

    threading.Thread(target=time.sleep, args=(3600,)).start()


def test_a_pool_that_is_garbage_ends_its_workers() -> None:
    """Without a close: what was submitted is done first. (That nothing is left is checked after every test.)"""
    pool = ProcessPoolExecutor(2)
    future = pool.submit(time.sleep, 0.2)
    del pool
    gc.collect()
    assert future.result(PATIENCE_S) is None


def test_a_pool_belongs_to_its_process() -> None:
    """A forked child cannot use it, is told so, and does not disturb it."""
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4
        child = os.fork()
        if child == 0:
            try:
                pool.submit(calls.square, 3)
            except RuntimeError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert pool.submit(calls.square, 3).result(PATIENCE_S) == 9


_own_pool: list[ProcessPoolExecutor] = []


def use_own_pool() -> str:
    """In a worker that was forked by the very call that started the pool."""
    (pool,) = _own_pool
    pool.shutdown()
    with pytest.raises(RuntimeError) as refused:
        pool.submit(calls.square, 3)
    return str(refused.value)


def test_a_pool_cannot_be_used_by_its_own_workers() -> None:
    """Who forks them has the pool's lock: they are told all the same, and do not wait for it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), timeout=PATIENCE_S) as pool:
        _own_pool.append(pool)
        try:
            said = pool.submit(use_own_pool).result(2 * PATIENCE_S)
        finally:
            _own_pool.clear()
        assert "belongs to the process it was made in" in said
        assert pool.submit(calls.square, 3).result(PATIENCE_S) == 9


def test_a_script_that_ends_finishes_what_it_submitted() -> None:
    """As with the standard library's pool; and the program ends."""
    assert run_program("stay_in_pool.py", "fork", "idle", "exit") == "ready\n"


@pytest.mark.parametrize("method", ["fork", "portable"])
def test_a_process_that_a_call_forks_is_not_the_worker(method: str) -> None:
    """Whether it returns, raises or leaves: it ends with the status that says so, and what it says is no result."""
    with ours(method)(1) as pool:
        for how, status in {"returns": 0, "raises": 1, "exits": 5}.items():
            forked = pool.submit(calls.fork_and_come_back, how).result(PATIENCE_S)
            assert forked == ("of the worker", status)
        assert pool.submit(calls.square, 3).result(PATIENCE_S) == 9


def test_pools_can_be_nested() -> None:
    """Workers may have children: a pool of theirs, too."""
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(calls.nested, 4).result(PATIENCE_S) == [0, 1, 4, 9]


def test_what_cannot_be_sent_is_named() -> None:
    """The argument, down to the attribute; and nothing else fails."""
    with ProcessPoolExecutor(1) as pool:
        error = pool.submit(calls.describe, 1, options={"lock": calls.make_lock()}).exception(PATIENCE_S)
        assert isinstance(error, holdfast.NotPicklable)
        assert error.path == "argument 'options'['lock']"
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4


def test_futures_are_the_standard_librarys() -> None:
    """`as_completed`, `wait` and asyncio take them as they are."""
    with ProcessPoolExecutor(1) as pool:
        assert type(pool.submit(calls.square, 1)) is concurrent.futures.Future


def test_closures_and_partials_of_tests_arrive() -> None:
    """What has no name that a worker could look up is sent by value."""
    factor = 3
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(lambda number: number * factor, 5).result(PATIENCE_S) == 15
        assert pool.submit(functools.partial(lambda a, b: a - b, 10), b=4).result(PATIENCE_S) == 6


class Noting(ProcessPoolExecutor):
    """Of the user's: it has a `submit` of its own."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        self.__dict__.setdefault("noted", []).append(args)
        return super().submit(fn, *args, **kwargs)


def test_map_submits_as_a_class_of_the_users_does() -> None:
    """As with the standard library's pool."""
    with Noting(1) as pool:
        assert list(pool.map(calls.square, range(3))) == [0, 1, 4]
        assert pool.__dict__.pop("noted") == [(0,), (1,), (2,)]
        assert list(pool.map(calls.square, range(3), chunksize=2)) == [0, 1, 4]
        assert len(pool.__dict__.pop("noted")) == 2


@pytest.mark.parametrize("chunksize", [1, 2])
def test_what_a_map_was_asked_of_lives_as_long_as_its_results(chunksize: int) -> None:
    """Python 3.14, with a `buffersize`, submits more as results are taken, for as long as that is there: without it the
    rest of the items would be left out.
    """
    with ProcessPoolExecutor(1) as pool:
        options = pool.options(timeout=PATIENCE_S)
        asked = weakref.ref(options)
        results = options.map(calls.square, range(4), chunksize=chunksize)
        del options
        assert next(results) == 0
        assert asked() is not None
        assert list(results) == [1, 4, 9]
        assert asked() is None


def test_a_call_is_told_as_it_was_asked_for() -> None:
    """What a partial holds, and what calls a chunk is made of."""
    with ProcessPoolExecutor(1) as pool:
        die = functools.partial(calls.die_at, 1, number=1)
        error = pool.submit(die, "os._exit").exception(PATIENCE_S)
        assert "while running die_at(1, 'os._exit', number=1)\n" in str(error)
        with pytest.raises(WorkerCrashed) as crashed:
            list(pool.map(calls.die, ["os._exit", "hang", "SIGKILL"], chunksize=3))
        assert "while running 3 calls as one, die('os._exit') to die('SIGKILL')\n" in str(crashed.value)
        with pytest.raises(WorkerCrashed) as crashed:
            list(pool.map(calls.die, ["os._exit"], chunksize=3))
        assert "while running 1 call as one, die('os._exit')\n" in str(crashed.value)


def test_a_worker_that_keeps_too_much_of_its_limit_is_replaced_after_a_call_that_had_no_room() -> None:
    """That call has failed: it is run again only on request. The next one finds a worker with all of the limit."""
    with holdfast.ProcessPoolExecutor(1, memory_limit="256MB") as pool:
        crowded = pool.submit(calls.keep_bytes, 200 << 20).result()
        assert isinstance(pool.submit(calls.take_bytes, 180 << 20).exception(), MemoryError)
        assert pool.submit(calls.take_bytes, 180 << 20).result() == 1
        assert pool.submit(calls.pid_of_worker).result() != crowded
        assert pool.restarts == 0


def test_an_interrupt_that_leaves_the_block_ends_what_runs_and_cancels_what_waits() -> None:
    """The standard library waits there for all of it."""
    futures: list[Any] = []

    def use() -> None:
        with ProcessPoolExecutor(1) as pool:
            futures.append(pool.submit(calls.die, "hang"))
            futures.extend(pool.submit(calls.square, number) for number in range(5))
            wait_until(futures[0].running, PATIENCE_S, "the first call")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    running, *waiting = futures
    assert isinstance(running.exception(PATIENCE_S), holdfast.WorkerError)
    assert all(future.cancelled() for future in waiting)


def test_interrupts_of_workers_that_have_nothing_to_do_break_no_pool() -> None:
    """Ctrl-C in a notebook reaches every process of its kernel. More of them than deaths are allowed in a minute."""
    with ProcessPoolExecutor(1) as pool:
        pids = [pool.submit(calls.pid_of_worker).result(PATIENCE_S)]
        for count in range(1, 6):
            os.kill(pids[-1], signal.SIGINT)
            wait_until(lambda count=count: pool.restarts == count, PATIENCE_S, "another worker")  # type: ignore[misc]
            pids.append(pool.submit(calls.pid_of_worker).result(PATIENCE_S))
    assert len(set(pids)) == 6
