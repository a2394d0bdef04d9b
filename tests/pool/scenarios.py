"""One scenario, two pools: each function here uses a pool in one way and returns what came of it, as plain data.

Runs in: the test process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import operator
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import calls
from calls import MakePool
from waits import PATIENCE_S, wait_until

Scenario = Callable[[MakePool, int, Path], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def said(error: BaseException | None) -> tuple[Any, ...]:
    """An exception as plain data: its type, what it says, and whether the worker's traceback is its cause."""
    assert error is not None
    cause = error.__cause__
    return type(error).__name__, str(error), type(cause).__name__, "Traceback" in str(cause)


def outcome(future: concurrent.futures.Future[Any]) -> tuple[Any, ...]:
    if future.cancelled():
        return ("cancelled",)
    error = future.exception(timeout=PATIENCE_S)
    return ("returned", future.result()) if error is None else ("raised", *said(error))


def raised_by(function: Callable[[], object]) -> tuple[str, str]:
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


# -- what a call gives -------------------------------------------------------------------------------------------------


@scenario
def a_call_returns(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return pool.submit(calls.square, 7).result(PATIENCE_S)


@scenario
def keywords_arrive_whatever_their_names(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return pool.submit(calls.describe, 1, "b", fn=2, self=3, timeout=4).result(PATIENCE_S)


@scenario
def values_of_many_kinds(make: MakePool, workers: int, _: Path) -> Any:
    values = [None, True, 10**30, "ü" * 5000, b"\0" * 100_000, {1: [2, (3, {4})]}, 1.5, ..., {"k": {"k": []}}]
    with make(workers) as pool:
        return [pool.submit(operator.itemgetter(0), (value,)).result(PATIENCE_S) for value in values]


@scenario
def callables_of_many_kinds(make: MakePool, workers: int, _: Path) -> Any:
    kinds = [(len, "abc"), (str, 5), ("a,b".split, ","), (functools.partial(calls.fail_at, 9), 3), (operator.neg, 2)]
    with make(workers) as pool:
        return [pool.submit(fn, arg).result(PATIENCE_S) for fn, arg in kinds]


@scenario
def what_cannot_be_called(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return outcome(pool.submit(5, 1))  # type: ignore[arg-type]


@scenario
def exceptions_of_many_kinds(make: MakePool, workers: int, _: Path) -> Any:
    errors = [ValueError("bad", 5), KeyError("k"), OSError(2, "gone", "file"), StopIteration(3), ArithmeticError()]
    with make(workers) as pool:
        return [outcome(pool.submit(calls.fail, error)) for error in errors]


@scenario
def an_exception_with_a_cause(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        error = pool.submit(calls.fail_from_cause).exception(PATIENCE_S)
        return said(error), "KeyError: 'missing'" in str(error.__cause__) if error else None


@scenario
def a_call_that_leaves_the_interpreter(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        futures = [pool.submit(calls.leave_interpreter, 5), pool.submit(calls.interrupt), pool.submit(calls.square, 2)]
        return [outcome(future) for future in futures]


@scenario
def an_argument_that_cannot_be_pickled(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        error = pool.submit(calls.square, threading.Lock()).exception(PATIENCE_S)  # type: ignore[arg-type]
        return isinstance(error, TypeError), pool.submit(calls.square, 3).result(PATIENCE_S)


@scenario
def a_result_that_cannot_be_pickled(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        error = pool.submit(calls.make_lock).exception(PATIENCE_S)
        return type(error).__name__, str(error), pool.submit(calls.square, 3).result(PATIENCE_S)


# -- map ---------------------------------------------------------------------------------------------------------------


@scenario
def map_is_in_order(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return list(pool.map(calls.square, range(40)))


@scenario
def map_of_several_iterables_ends_with_the_shortest(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return list(pool.map(pow, [2, 3, 4], iter([5, 6]), (7, 8, 9)))


@scenario
def map_of_nothing(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return list(pool.map(calls.square, []))


@scenario
def map_in_chunks(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        sizes = [2, 3, 7, 100]
        return [list(pool.map(calls.square, range(20), chunksize=size)) for size in sizes]


@scenario
def map_in_chunks_of_nothing(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return raised_by(lambda: pool.map(calls.square, range(5), chunksize=0))


@scenario
def map_up_to_an_item_that_raises(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        results = pool.map(functools.partial(calls.fail_at, 3), range(6))
        before = [next(results) for _ in range(3)]
        return before, raised_by(lambda: next(results)), list(results)


@scenario
def map_in_chunks_up_to_one_that_raises(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        results = pool.map(functools.partial(calls.fail_at, 5), range(9), chunksize=2)
        return [next(results) for _ in range(4)], raised_by(lambda: next(results))


@scenario
def map_that_is_closed_cancels_what_has_not_begun(make: MakePool, workers: int, tmp: Path) -> Any:
    seen: list[Any] = []
    for chunksize in (1, 2):
        gate = tmp / f"gate {chunksize}"
        with make(workers) as pool:
            results: Any = pool.map(calls.wait_for, [gate] * 40, chunksize=chunksize)
            wait_until(lambda gate=gate: calls.has_begun(gate), PATIENCE_S)
            results.close()
            last = pool.submit(calls.square, 3)
            gate.touch()
            seen.append((list(results), last.result(PATIENCE_S)))
    return seen


@scenario
def map_takes_all_items_at_once(make: MakePool, workers: int, _: Path) -> Any:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(50):
            taken.append(item)
            yield item

    with make(workers) as pool:
        results = pool.map(calls.square, items())
        return len(taken), list(results)


@scenario
def map_within_a_time(make: MakePool, workers: int, tmp: Path) -> Any:
    with make(workers) as pool:
        results = pool.map(calls.wait_for, [tmp / "gate"], timeout=0.2)
        said = raised_by(lambda: next(results))
        (tmp / "gate").touch()
        return said


# -- futures -----------------------------------------------------------------------------------------------------------


@scenario
def a_future_as_it_runs(make: MakePool, workers: int, tmp: Path) -> Any:
    with make(workers) as pool:
        future = pool.submit(calls.wait_for, tmp / "gate")
        wait_until(lambda: calls.has_begun(tmp / "gate"), PATIENCE_S)
        seen = [future.running(), future.done(), future.cancel(), raised_by(lambda: future.result(timeout=0))]
        (tmp / "gate").touch()
        return seen, future.result(PATIENCE_S), future.running(), future.done(), future.cancelled()


@scenario
def cancelling_what_has_not_begun(make: MakePool, workers: int, tmp: Path) -> Any:
    with make(workers) as pool:
        busy = [pool.submit(calls.wait_for, tmp / "gate") for _ in range(workers)]
        waiting = [pool.submit(calls.square, number) for number in range(30)]
        wait_until(lambda: calls.has_begun(tmp / "gate"), PATIENCE_S)
        cancelled = [future.cancel() for future in waiting[10:]]  # (the standard library's sends some ahead)
        (tmp / "gate").touch()
        done, not_done = concurrent.futures.wait([*busy, *waiting], PATIENCE_S)
        return cancelled, len(done), len(not_done), [outcome(future) for future in [*waiting[:5], *waiting[10:]]]


@scenario
def callbacks_are_called_with_the_future(make: MakePool, workers: int, _: Path) -> Any:
    seen: list[Any] = []
    with make(workers) as pool:
        future = pool.submit(calls.square, 5)
        future.add_done_callback(lambda done: seen.append(done.result()))
        failing = pool.submit(calls.fail, ValueError("bad"))
        failing.add_done_callback(lambda done: seen.append(repr(done.exception())))
        wait_until(lambda: len(seen) == 2, PATIENCE_S)
    return sorted(map(str, seen))


@scenario
def callbacks_may_submit_more(make: MakePool, workers: int, _: Path) -> Any:
    chain: list[concurrent.futures.Future[int]] = []
    with make(workers) as pool:

        def go_on(future: concurrent.futures.Future[int]) -> None:
            if len(chain) < 5:
                chain.append(pool.submit(calls.square, len(chain)))
                chain[-1].add_done_callback(go_on)

        go_on(concurrent.futures.Future())
        wait_until(lambda: len(chain) == 5 and chain[-1].done(), PATIENCE_S)
    return [future.result() for future in chain]


@scenario
def as_completed_gives_all(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        futures = [pool.submit(calls.square, number) for number in range(20)]
        return sorted(future.result() for future in concurrent.futures.as_completed(futures, PATIENCE_S))


@scenario
def submitted_by_many_threads(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool, concurrent.futures.ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(lambda k=k: pool.submit(calls.square, k).result(PATIENCE_S)) for k in range(40)]
        return [future.result(PATIENCE_S) for future in asked]


@scenario
def awaited(make: MakePool, workers: int, _: Path) -> Any:
    async def run(pool: concurrent.futures.Executor) -> list[int]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(pool, calls.square, number) for number in range(10)))

    with make(workers) as pool:
        return asyncio.run(run(pool))


# -- the pool ----------------------------------------------------------------------------------------------------------


@scenario
def wrong_arguments(make: MakePool, workers: int, _: Path) -> Any:
    wrong: list[dict[str, Any]] = [
        {"max_workers": 0},
        {"max_workers": -1},
        {"initializer": 5},
        {"max_tasks_per_child": 0},
        {"max_tasks_per_child": "many"},
    ]
    return [raised_by(lambda kwargs=kwargs: make(**kwargs)) for kwargs in wrong]


@scenario
def submitting_after_the_end(make: MakePool, workers: int, _: Path) -> Any:
    pool = make(workers)
    pool.submit(calls.square, 1).result(PATIENCE_S)
    pool.shutdown()
    pool.shutdown()
    return raised_by(lambda: pool.submit(calls.square, 2)), raised_by(lambda: pool.map(calls.square, [1]))


@scenario
def a_pool_that_is_never_used(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers):
        pass
    pool = make(workers)
    pool.shutdown(wait=False, cancel_futures=True)
    return raised_by(lambda: pool.submit(calls.square, 2))


@scenario
def leaving_the_block_waits_for_all(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        futures = [pool.submit(time.sleep, 0.05) for _ in range(6)]
    return [future.done() for future in futures]


@scenario
def an_exception_in_the_block(make: MakePool, workers: int, _: Path) -> Any:
    futures: list[Any] = []

    def use() -> None:
        with make(workers) as pool:
            futures.extend(pool.submit(calls.square, number) for number in range(5))
            raise LookupError("mine")

    return raised_by(use), [future.result(PATIENCE_S) for future in futures]


@scenario
def closing_without_waiting(make: MakePool, workers: int, _: Path) -> Any:
    pool = make(workers)
    futures = [pool.submit(calls.square, number) for number in range(10)]
    pool.shutdown(wait=False)
    return [future.result(PATIENCE_S) for future in futures], raised_by(lambda: pool.submit(calls.square, 1))


@scenario
def closing_cancels_what_has_not_begun(make: MakePool, workers: int, tmp: Path) -> Any:
    pool = make(workers)
    gates = [tmp / f"gate {number}" for number in range(workers)]
    busy = [pool.submit(calls.wait_for, gate) for gate in gates]
    wait_until(lambda: all(map(calls.has_begun, gates)), PATIENCE_S)
    waiting = [pool.submit(calls.square, number) for number in range(30)]

    def open_gates_later() -> None:
        """Once all is cancelled that is to be, and not at some time: a busy machine may need longer."""
        try:
            wait_until(lambda: all(future.cancelled() for future in waiting[10:]), PATIENCE_S)
        finally:
            for gate in gates:
                gate.touch()

    later = threading.Thread(target=open_gates_later)
    later.start()
    pool.shutdown(cancel_futures=True)
    later.join()
    return [outcome(future) for future in busy], [outcome(future) for future in waiting[10:]]


@scenario
def a_pool_that_is_let_go(make: MakePool, workers: int, _: Path) -> Any:
    pool = make(workers)
    futures = [pool.submit(calls.square, number) for number in range(10)]
    del pool
    gc.collect()
    return [future.result(PATIENCE_S) for future in futures]


@scenario
def an_initializer(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers, initializer=calls.initialize, initargs=(1, "two")) as pool:
        return [pool.submit(calls.initialized).result(PATIENCE_S) for _ in range(4)]


@scenario
def an_initializer_that_raises(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers, initializer=calls.initialize_badly) as pool:
        future = pool.submit(calls.square, 1)
        is_broken = isinstance(future.exception(PATIENCE_S), concurrent.futures.process.BrokenProcessPool)
        wait_until(lambda: raised_by(lambda: pool.submit(calls.square, 2))[0], PATIENCE_S)
        try:
            pool.submit(calls.square, 3)
        except concurrent.futures.process.BrokenProcessPool:
            return is_broken, "broken"
    return is_broken, "not broken"


@scenario
def workers_may_have_children(make: MakePool, workers: int, _: Path) -> Any:
    with make(workers) as pool:
        return pool.submit(calls.child_of_worker).result(PATIENCE_S)


@scenario
def calls_run_elsewhere_and_at_once(make: MakePool, workers: int, tmp: Path) -> Any:
    with make(workers) as pool:
        gates = [tmp / f"gate{k}" for k in range(workers)]
        futures = [pool.submit(calls.wait_for, gate) for gate in gates]
        wait_until(lambda: all(map(calls.has_begun, gates)), PATIENCE_S)
        for gate in gates:
            gate.touch()
        return [future.result(PATIENCE_S) for future in futures]
