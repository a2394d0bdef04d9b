"""64 items, two workers, a fault at item 17: how many come back, of a pool and of map.

The matrix that other pools were measured with: the loader's part is `tests/faults/test_matrix.py`.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import calls
import holdfast
from calls import METHODS
from helpers import Program, run_program

pytestmark = pytest.mark.timeout(150)

LENGTH = 64
BAD = 17
REST = [number for number in range(LENGTH) if number != BAD]
FRONTS = ("pool", "map")
Function = Callable[[int], int]


def run(front: str, method: str, function: Function, **options: Any) -> tuple[list[int], BaseException | None]:
    """What came back, in order, and the exception of item 17, if there was one."""
    how = {"backend": method} if method == "portable" else {"mp_context": calls.ours(method).keywords["mp_context"]}
    results = (_with_pool if front == "pool" else _with_map)(function, **how, **options)
    failed = [(number, error) for number, (_, error) in enumerate(results) if error is not None]
    assert [number for number, _ in failed] in ([], [BAD])
    return [value for value, error in results if error is None], failed[0][1] if failed else None


def _with_pool(function: Function, **options: Any) -> list[tuple[Any, BaseException | None]]:
    with holdfast.ProcessPoolExecutor(2, **options) as pool:
        futures = [pool.submit(function, number) for number in range(LENGTH)]
        errors = [future.exception() for future in futures]
        return [(None if e else future.result(), e) for future, e in zip(futures, errors, strict=True)]


def _with_map(function: Function, **options: Any) -> list[tuple[Any, BaseException | None]]:
    results = holdfast.map(function, range(LENGTH), num_workers=2, on_error="return", **options)
    return [(None, r.exception) if isinstance(r, holdfast.FailedItem) else (r, None) for r in results]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("front", FRONTS)
def test_f1_an_exception_costs_its_item(front: str, method: str) -> None:
    """63 of 64, and the function's own exception."""
    values, error = run(front, method, functools.partial(calls.fail_at, BAD))
    assert values == REST
    assert repr(error) == f"ValueError('not {BAD}')"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("front", FRONTS)
def test_f2_a_kill_costs_nothing_with_a_retry(front: str, method: str, tmp_path: Path) -> None:
    """SIGKILL once: 64 of 64, in order."""
    values, error = run(front, method, DiesOnce(tmp_path / "struck"), max_retries=1)
    assert (values, error) == (list(range(LENGTH)), None)
    assert (tmp_path / "struck").exists()


class DiesOnce:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, number: int) -> int:
        if number == BAD:
            assert calls.die_once(self.mark, "SIGKILL") == "survived"
        return number


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("how", ["SIGSEGV", "os._exit"], ids=["f3", "f6"])
def test_f3_f6_a_call_that_crashes_costs_itself(how: str, front: str, method: str) -> None:
    """63 of 64, and what killed the worker, with the call it was running."""
    values, error = run(front, method, functools.partial(calls.die_at, BAD, how))
    assert values == REST
    assert isinstance(error, holdfast.WorkerCrashed)
    assert error.incident is not None
    assert error.incident.cause == ("segmentation fault" if how == "SIGSEGV" else "exit by user code")
    assert "17)" in str(error).split("\n", maxsplit=1)[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("front", FRONTS)
def test_f4_a_call_that_hangs_costs_itself(front: str, method: str) -> None:
    """63 of 64, and where it hung."""
    values, error = run(front, method, functools.partial(calls.die_at, BAD, "hang"), timeout=1.0)
    assert values == REST
    assert isinstance(error, holdfast.WorkerTimeout)
    assert error.incident is not None
    assert error.incident.cause == "hang"
    assert "timeout=1 passed" in str(error)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("front", FRONTS)
def test_f5_a_call_over_memory_limit_costs_itself(front: str, method: str) -> None:
    """63 of 64: 8 GiB where 1 GB is allowed is a MemoryError that says so."""
    values, error = run(front, method, hungry_at_bad, memory_limit="1GB")
    assert values == REST
    assert isinstance(error, MemoryError)
    assert error.incident.cause == "over memory_limit"  # type: ignore[attr-defined]


def hungry_at_bad(number: int) -> int:
    return calls.hungry(0) if number == BAD else number


@pytest.mark.parametrize(
    "through_stdin", [pytest.param(False, marks=pytest.mark.long), True], ids=["script", "python -"]
)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_f7_functions_of_main_reach_every_worker(method: str, through_stdin: bool) -> None:
    """64 of 64, lambdas and classes too, from a script and from a program on standard input."""
    said = run_program("pool_main_functions.py", method, through_stdin=through_stdin)
    assert said == "64 in order\nTrue True\nTrue\n2016\n"


CASES = [
    ("pool", "fork", "asleep"),
    *(pytest.param(front, "fork", "python loop", marks=pytest.mark.long) for front in FRONTS),
    pytest.param("map", "fork", "asleep", marks=pytest.mark.long),
    *(pytest.param(front, "fork", "C loop", marks=pytest.mark.long) for front in FRONTS),
    pytest.param("pool", "fork", "idle", marks=pytest.mark.long),
    *((front, method, "asleep") for front in FRONTS for method in ("spawn", "forkserver", "portable")),
]


@pytest.mark.parametrize(("front", "method", "state"), CASES)
def test_f8_nothing_is_left_when_the_main_process_is_killed(front: str, method: str, state: str) -> None:
    """Whatever the workers do: no process, no name."""
    with Program("stay_in_pool.py", method, state, front) as program:
        program.wait_for_lines("ready")
        if state == "idle":
            program.wait_for_lines("idle")
        else:
            program.wait_for_lines("stuck", count=2)
        assert len(program.processes()) >= 3, "the mark must be seen on the workers, or this test proves nothing"
        program.process.kill()
        program.wait_until_nothing_is_left(5.0)
        assert program.wait() == -signal.SIGKILL


# -- programs of users' accounts ---------------------------------------------------------------------------------------

WRONG = {"raises": "LookupError", "dies": "WorkerCrashed", "hangs": "WorkerTimeout"}
VERSIONS = ["dies", *(pytest.param(version, marks=pytest.mark.long) for version in ("works", "raises", "hangs"))]


@pytest.mark.parametrize(
    "program", ["unhandled", *(pytest.param(p, marks=pytest.mark.long) for p in ("logged", "memory"))]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_users_program_with_the_import_changed(program: str, version: str) -> None:
    """As it was written it prints what it printed; where item 3 raises, dies or hangs, the other nine come all the
    same, and nothing is left behind.
    """
    *_, last = run_program("pool_load_data.py", program, version).splitlines()
    whole: list[Any] = [item * 2 if item % 2 else None for item in range(10)]
    expected = [item + 1000000 for item in range(10)] if program == "memory" else whole
    assert last == str([WRONG.get(version, e) if item == 3 else e for item, e in enumerate(expected)])


@pytest.mark.long
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("version", ["works", *WRONG])
def test_a_users_program_that_keeps_results_in_a_managers_dict(front: str, version: str) -> None:
    """The same with `process_data` and `data_list` filled in. (With the pool, its own handler takes what is raised.)"""
    *_, last = run_program("pool_process_data.py", front, version).splitlines()
    wrong = "None" if (front, version) == ("pool", "raises") else repr(WRONG.get(version, 9))
    assert last == str([data * data for data in range(8)]).replace("9", wrong, 1)
