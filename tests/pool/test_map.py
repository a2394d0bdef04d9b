"""`holdfast.map`: results in order, failures as values, items that never end, and the bar."""

from __future__ import annotations

import functools
import io
import itertools
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import calls
import holdfast
from calls import METHODS
from holdfast import FailedItem, counted
from holdfast.pool import mapping, progress
from waits import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(150)


def how(method: str) -> dict[str, Any]:
    return {"backend": method} if method == "portable" else {"mp_context": calls.ours(method).keywords["mp_context"]}


@pytest.mark.parametrize("method", METHODS)
def test_results_come_in_the_order_of_the_items(method: str) -> None:
    """All of them, also when those at the front take longest."""
    items = [0.3, *[0.0] * 30]
    assert list(holdfast.map(sleep_and_return, enumerate(items), num_workers=2, **how(method))) == list(range(31))


def sleep_and_return(item: tuple[int, float]) -> int:
    import time

    time.sleep(item[1])
    return item[0]


@pytest.mark.parametrize("wrong", ["raises", "dies", "hangs"])
def test_failures_are_values_with_return(wrong: str) -> None:
    """In their places, with item, exception and incident."""
    function = functools.partial(go_wrong, wrong)
    results = list(holdfast.map(function, "abcdef", num_workers=2, on_error="return", timeout=1.0))
    failed = results[2]
    assert [*results[:2], *results[3:]] == ["A", "B", "D", "E", "F"]
    assert isinstance(failed, FailedItem)
    assert (failed.index, failed.item) == (2, "c")
    kind = {"raises": ValueError, "dies": holdfast.WorkerCrashed, "hangs": holdfast.WorkerTimeout}[wrong]
    assert isinstance(failed.exception, kind)
    assert failed.incident is not None
    assert failed.incident.cause == {"raises": "exception", "dies": "segmentation fault", "hangs": "hang"}[wrong]


def go_wrong(how: str, letter: str) -> str:
    if letter == "c" and how == "raises":
        raise ValueError(letter)
    if letter == "c":
        calls.die("hang" if how == "hangs" else "SIGSEGV")
    return letter.upper()


def test_failures_are_left_out_with_skip() -> None:
    """The rest comes in order."""
    function = functools.partial(calls.fail_at, 3)
    assert list(holdfast.map(function, range(6), num_workers=2, on_error="skip")) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("on_error", ["return", "skip"])
@pytest.mark.parametrize("initializer", [calls.initialize_badly, calls.die_in_initializer])
def test_workers_that_cannot_be_had_are_no_items_fault(initializer: Any, on_error: str) -> None:
    """Under every setting it is raised, however few items there are: to skip them all would hide that nothing works."""
    results = holdfast.map(calls.square, range(3), num_workers=2, on_error=on_error, initializer=initializer)
    with pytest.raises(holdfast.WorkerInitError):
        next(results)
    assert list(results) == []


def break_a_pool(number: int) -> int:
    """At item 1."""
    with holdfast.ProcessPoolExecutor(1, initializer=calls.initialize_badly if number == 1 else None) as pool:
        return pool.submit(calls.square, number).result()


def test_a_pool_that_breaks_in_the_function_is_its_items_fault() -> None:
    """It is another than the one that runs the items."""
    results = list(holdfast.map(break_a_pool, range(4), num_workers=2, on_error="return"))
    failed = results[1]
    assert [results[0], *results[2:]] == [0, 4, 9]
    assert isinstance(failed, FailedItem)
    assert isinstance(failed.exception, holdfast.WorkerInitError)
    assert failed.incident is not None


def test_the_first_failure_is_raised_by_default() -> None:
    """At its place, after the results before it, with a note that names the item; then it is over."""
    results = holdfast.map(functools.partial(calls.fail_at, 3), range(6), num_workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="not 3") as caught:
        next(results)
    assert "raised by item 3 of map: 3" in caught.value.__notes__
    assert list(results) == []


def test_endless_items_are_taken_as_they_are_needed() -> None:
    """No more than a window ahead of what was asked for, however long nobody asks."""
    taken = itertools.count()
    seen: list[int] = []

    def items() -> Iterator[int]:
        for item in taken:
            seen.append(item)
            yield item

    results = holdfast.map(calls.square, items(), num_workers=2)
    assert [next(results) for _ in range(100)] == [number * number for number in range(100)]
    assert len(seen) <= 100 + mapping._WINDOW * 2
    results.close()  # type: ignore[attr-defined]


def test_a_result_does_not_wait_for_items_that_are_slow_to_come() -> None:
    """It is given before the next items are there, though fewer are under way than may be."""
    seen: list[int] = []
    before = counted.read()[counted.MAP].counts["samples"]

    def items() -> Iterator[int]:
        yield 0
        wait_until(lambda: counted.read()[counted.MAP].counts["samples"] > before, PATIENCE_S, "the first result")
        for item in range(1, 2 * mapping._WINDOW):
            may_take_s = time.monotonic() + 0.1
            wait_until(lambda may_take_s=may_take_s: seen or time.monotonic() > may_take_s, PATIENCE_S)  # type: ignore[misc]
            assert seen or item < 2 * mapping._WINDOW - 1, "nobody is given the first result"
            yield item

    for result in holdfast.map(calls.square, items(), num_workers=2):
        seen.append(result)
    assert seen == [number * number for number in range(2 * mapping._WINDOW)]


def test_items_that_raise_do_so_after_the_results_before() -> None:
    """Nothing that was asked for is lost."""

    def items() -> Iterator[int]:
        yield from range(5)
        raise LookupError("no more")

    results = holdfast.map(calls.square, items(), num_workers=2)
    assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
    with pytest.raises(LookupError, match="no more"):
        next(results)


def test_an_iterator_that_is_let_go_ends_its_workers(tmp_path: Path) -> None:
    """Though one of them hangs, and there is no timeout. (That nothing is left is checked after every test.)"""
    results = holdfast.map(functools.partial(calls.die_at, 5, "hang"), range(20), num_workers=2)
    assert next(results) == 0
    del results


def test_nothing_is_run_before_the_first_result_is_asked_for() -> None:
    """Wrong arguments are refused at once all the same."""
    holdfast.map(calls.square, range(3), num_workers=2)
    with pytest.raises(ValueError, match="on_error='ignore' is not one of"):
        holdfast.map(calls.square, range(3), on_error="ignore")
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        holdfast.map(calls.square, range(3), num_workers=0)


# -- the bar -----------------------------------------------------------------------------------------------------------


def test_the_bar_says_rate_failures_and_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal."""
    screen = io.StringIO()
    console = functools.partial(Console, file=screen, force_terminal=True, force_jupyter=False, width=120)
    monkeypatch.setattr(progress, "Console", lambda stderr: console())
    function = functools.partial(calls.die_at, 4, "os._exit")
    list(holdfast.map(function, range(10), num_workers=1, on_error="skip"))
    last = screen.getvalue().replace("\x1b", "")
    assert "10/10" in last
    assert "/s, 1 failed, 1 restart" in last


def test_nothing_is_shown_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither into a file nor, with progress=False, anywhere."""
    list(holdfast.map(calls.square, range(3), num_workers=1))
    list(holdfast.map(calls.square, range(3), num_workers=1, progress=False))
    assert capfd.readouterr() == ("", "")


def test_a_notebook_has_one_output_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With IPython's own display, and no widgets."""
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            assert raw
            shown.append(data)

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append(data)
        return Handle()

    notebook = types.ModuleType("IPython.display")
    notebook.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    bar = progress.NotebookBar(4)
    bar.show(1, 0, 0)
    bar.show(4, 1, 2)
    bar.close()
    assert len(shown) == 2
    assert shown[-1]["text/html"].startswith("<progress value=4 max=4></progress> 4/4, ")
    assert shown[-1]["text/plain"].startswith("4/4, ")
    assert shown[-1]["text/plain"].endswith("/s, 1 failed, 2 restarts")


def test_what_cannot_be_iterated_is_refused_at_once() -> None:
    """Where `map` is called, and not where its first result is asked for."""
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        holdfast.map(calls.square, 5, num_workers=1)  # type: ignore[call-overload]
