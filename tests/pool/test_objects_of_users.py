"""What the user's own objects do on their way: exceptions, results and log handlers that misbehave cost one call at
most, and nobody waits for ever.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import calls
import holdfast
from calls import METHODS, ours
from holdfast import FailedItem, ProcessPoolExecutor
from waits import PATIENCE_S

pytestmark = pytest.mark.timeout(150)


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """Allows nobody to set an attribute: neither a cause nor a note."""

    path: str


def fail_frozen(path: str) -> None:
    raise FrozenError(path)


def test_an_exception_that_allows_no_attribute_to_be_set_is_one_calls_own() -> None:
    """It arrives with its cause, as any other. (The standard library's pool is broken by it.)"""
    with ProcessPoolExecutor(1) as pool:
        error = pool.submit(fail_frozen, "a").exception(PATIENCE_S)
        assert error == FrozenError("a")
        assert "in fail_frozen" in str(error.__cause__)
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4


def test_an_exception_that_allows_no_attribute_to_be_set_is_an_items_own() -> None:
    """With its incident as a value, and with a note that names the item where it is raised."""
    (failed,) = holdfast.map(fail_frozen, ["a"], num_workers=1, on_error="return")
    assert isinstance(failed, FailedItem)
    assert failed.exception == FrozenError("a")
    assert failed.incident is not None
    with pytest.raises(FrozenError) as caught:
        list(holdfast.map(fail_frozen, ["a"], num_workers=1))
    assert "raised by item 0 of map: 'a'" in caught.value.__notes__


@pytest.fixture
def only_there(tmp_path: Path) -> str:
    """A directory with a module that only workers look into."""
    code = "class Thing:\n    def __repr__(self):\n        return 'a thing'\n\n\nclass Error(LookupError):\n    pass\n"
    (tmp_path / "only_there.py").write_text(code)
    assert "only_there" not in sys.modules
    return str(tmp_path)


def look_into(directory: str) -> None:
    sys.path.insert(0, directory)


def fail_with(what: str) -> Any:
    import only_there

    if what == "argument":
        raise ValueError("bad", only_there.Thing())
    if what == "attribute":
        error = ValueError("bad")
        error.thing = only_there.Thing()  # type: ignore[attr-defined]
        raise error
    if what == "class":
        raise only_there.Error("bad")
    return only_there.Thing()


@pytest.mark.parametrize("method", METHODS)
def test_what_only_the_worker_can_load_costs_its_call_alone(method: str, only_there: str) -> None:
    """In an exception it is shown; as a result it is an error."""
    with ours(method)(1, initializer=look_into, initargs=(only_there,)) as pool:
        told = {
            what: pool.submit(fail_with, what).exception(PATIENCE_S)
            for what in ("argument", "attribute", "class", "result")
        }
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4
    assert (type(told["argument"]), told["argument"].args) == (ValueError, ("bad", "a thing"))  # type: ignore[union-attr]
    assert (type(told["attribute"]), told["attribute"].thing) == (ValueError, "a thing")  # type: ignore[union-attr]
    assert repr(told["class"]) == "RuntimeError('only_there.Error: bad')"
    assert isinstance(told["result"], ModuleNotFoundError)


class LeavesWhereItIsLoaded:
    """Unpickled, it ends the interpreter, or tries to."""

    def __reduce__(self) -> Any:
        return sys.exit, (3,)


def test_a_result_that_leaves_the_interpreter_when_it_is_loaded_costs_its_call_alone() -> None:
    with ProcessPoolExecutor(1) as pool:
        assert isinstance(pool.submit(LeavesWhereItIsLoaded).exception(PATIENCE_S), SystemExit)
        assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_leaves_the_interpreter_breaks_the_pool(tmp_path: Path) -> None:
    """And nobody waits for ever; what is said does not blame an initializer."""
    with ProcessPoolExecutor(1) as pool:
        first = pool.submit(calls.wait_for, tmp_path / "gate")
        first.add_done_callback(lambda _: sys.exit(3))
        later = pool.submit(calls.square, 3)
        (tmp_path / "gate").touch()
        error = later.exception(PATIENCE_S)
        assert isinstance(error, holdfast.WorkerInitError)
        assert str(error) == "the thread of this pool raised SystemExit: 3"


class BadHandler(logging.Handler):
    """Logs to somewhere that cannot be reached."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("no such host")


def test_a_log_handler_that_raises_costs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The call that died says why, and the next one is run; what the handler raised is shown."""
    handler = BadHandler()
    logging.getLogger("holdfast").addHandler(handler)
    try:
        with ProcessPoolExecutor(1) as pool:
            error = pool.submit(calls.die, "os._exit").exception(PATIENCE_S)
            assert isinstance(error, holdfast.WorkerCrashed)
            assert pool.submit(calls.square, 2).result(PATIENCE_S) == 4
    finally:
        logging.getLogger("holdfast").removeHandler(handler)
    assert "ConnectionError: no such host" in capfd.readouterr().err
