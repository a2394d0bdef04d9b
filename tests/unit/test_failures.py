"""An exception on its way from a worker: the same type, the same state, and the facts beside it."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.workers import failures
from holdfast.workers.failures import Failure, capture, rebuild
from waits import PATIENCE_S

WHERE = "raised in DataLoader worker process 1 (pid 17), batch 4, dataset[9]"


def raised(error: BaseException) -> BaseException:
    """The error as a worker catches it, with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def journey(error: BaseException) -> BaseException:
    """From the worker to the main process, as plain data."""
    failure = capture(raised(error), WHERE)
    return rebuild(Failure(*pickle.loads(pickle.dumps(tuple(failure)))))


def facts(error: BaseException) -> dict[str, Any]:
    """The error's own attributes, without our notes."""
    return {name: value for name, value in vars(error).items() if name != "__notes__"}


class OtherArguments(Exception):
    """A constructor that takes other arguments than the exception keeps: pickling it fails at loading."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"failed with {code}")
        self.code = code
        self.detail = detail


class OtherArgumentsOS(OSError):
    def __init__(self, path: str, *, tries: int) -> None:
        super().__init__(5, "cannot read", path)
        self.tries = tries


class OtherArgumentsUnicode(UnicodeDecodeError):
    def __init__(self, *, line: int) -> None:
        super().__init__("utf-8", b"\xff", 0, 1, "invalid start byte")
        self.line = line


class OtherArgumentsKey(KeyError):
    def __init__(self, key: str, *, table: str) -> None:
        super().__init__(key)
        self.table = table


class OtherArgumentsMemory(MemoryError):
    def __init__(self, *, wanted: int) -> None:
        super().__init__("too much")
        self.wanted = wanted


class OtherArgumentsImport(ImportError):
    def __init__(self, library: str) -> None:
        super().__init__(f"no {library}", name=library)


class OtherArgumentsGroup(ExceptionGroup[Exception]):
    def __new__(cls, errors: list[Exception]) -> OtherArgumentsGroup:
        return super().__new__(cls, "all of them", errors)

    def __init__(self, errors: list[Exception]) -> None:
        self.count = len(errors)


# --- type and state -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        ValueError(),
        ValueError("several", 2, {"arguments": [3]}),
        KeyError("key"),
        IndexError(3),
        StopIteration(4),
        AssertionError("no"),
        NotImplementedError(),
        KeyboardInterrupt("stop"),
        SystemExit(3),
    ],
    ids=repr,
)
def test_type_and_arguments_are_kept(error: BaseException) -> None:
    """Ordinary exceptions, also those that are no `Exception`."""
    got = journey(error)
    assert type(got) is type(error)
    assert got.args == error.args
    assert str(got) == str(error)


def test_the_fields_of_an_os_error_are_kept() -> None:
    """errno, strerror and both file names: code that decides by them goes on working."""
    got = journey(FileNotFoundError(2, "No such file", "a.jpg", None, "b.jpg"))
    assert isinstance(got, FileNotFoundError)
    assert (got.errno, got.strerror, got.filename, got.filename2) == (2, "No such file", "a.jpg", "b.jpg")
    assert str(got) == "[Errno 2] No such file: 'a.jpg' -> 'b.jpg'"


def test_the_fields_of_a_unicode_error_are_kept() -> None:
    """Where in which bytes."""
    got = journey(raised(_unicode_error()))
    assert isinstance(got, UnicodeDecodeError)
    assert (got.encoding, got.object, got.start, got.end) == ("utf-8", b"ab\xff", 2, 3)


def _unicode_error() -> UnicodeDecodeError:
    try:
        b"ab\xff".decode("utf-8")
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def test_a_key_error_keeps_its_key() -> None:
    """And not the key's repr, which is what its text shows."""
    assert journey(KeyError(("a", 1))).args == (("a", 1),)


def test_attributes_are_kept() -> None:
    """Whatever the user's code hung onto it."""
    error = ValueError("x")
    error.sample = {"index": 3}  # type: ignore[attr-defined]
    assert facts(journey(error)) == {"sample": {"index": 3}}


# --- constructors with other arguments ----------------------------------------------------------------------------


def test_a_constructor_with_other_arguments_is_not_called() -> None:
    """Type, args, text and attributes as in the worker."""
    got = journey(OtherArguments(7, detail="disk"))
    assert type(got) is OtherArguments
    assert got.args == ("failed with 7",)
    assert str(got) == "failed with 7"
    assert facts(got) == {"code": 7, "detail": "disk"}


def test_an_os_error_with_other_arguments_keeps_its_fields() -> None:
    """OSError keeps them outside `args` and `__dict__`, and has a constructor of its own kind."""
    got = journey(OtherArgumentsOS("a.jpg", tries=3))
    assert isinstance(got, OtherArgumentsOS)
    assert (got.errno, got.strerror, got.filename, got.tries) == (5, "cannot read", "a.jpg", 3)
    assert str(got) == "[Errno 5] cannot read: 'a.jpg'"


def test_a_unicode_error_with_other_arguments_keeps_its_fields() -> None:
    """Without them its text is empty and its attributes raise."""
    got = journey(OtherArgumentsUnicode(line=12))
    assert isinstance(got, OtherArgumentsUnicode)
    assert (got.line, got.reason, got.object) == (12, "invalid start byte", b"\xff")
    assert "invalid start byte" in str(got)


def test_a_key_error_with_other_arguments_is_kept() -> None:
    """A subclass with a keyword of its own."""
    got = journey(OtherArgumentsKey("name", table="people"))
    assert isinstance(got, OtherArgumentsKey)
    assert (got.args, got.table) == (("name",), "people")


def test_a_memory_error_with_other_arguments_is_kept() -> None:
    """MemoryError, too, has a constructor of its own kind."""
    got = journey(OtherArgumentsMemory(wanted=10))
    assert isinstance(got, OtherArgumentsMemory)
    assert (got.args, got.wanted) == (("too much",), 10)


def test_an_import_error_with_other_arguments_keeps_its_name() -> None:
    """Code that asks which module was missing goes on working."""
    got = journey(OtherArgumentsImport("lmdb"))
    assert isinstance(got, OtherArgumentsImport)
    assert (got.args, got.name) == (("no lmdb",), "lmdb")


# --- what cannot be pickled ---------------------------------------------------------------------------------------


def test_an_attribute_that_cannot_be_pickled_arrives_as_its_repr() -> None:
    """The others arrive as they are."""
    error = ValueError("x")
    error.handle = lock = threading.Lock()  # type: ignore[attr-defined]
    error.number = 5  # type: ignore[attr-defined]
    assert facts(journey(error)) == {"handle": repr(lock), "number": 5}


def test_an_argument_that_cannot_be_pickled_arrives_as_its_repr() -> None:
    """In its place among the others."""
    lock = threading.Lock()
    got = journey(ValueError("before", lock, "after"))
    assert type(got) is ValueError
    assert got.args == ("before", repr(lock), "after")


def test_an_os_error_with_an_argument_that_cannot_be_pickled_arrives() -> None:
    """Its kind is not one that can be made by BaseException alone."""
    lock = threading.Lock()
    got = journey(OSError(2, "No such file", lock))
    assert isinstance(got, FileNotFoundError)
    assert (got.errno, got.strerror, got.filename) == (2, "No such file", repr(lock))


class Spiteful:
    """Cannot be pickled, nor shown."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("not me")

    def __repr__(self) -> str:
        raise ValueError("nor like this")


def test_what_can_be_neither_pickled_nor_shown_does_not_hide_the_exception() -> None:
    """An error while reporting an error would kill the worker, and blame the sample for it."""
    error = ValueError("the real one", Spiteful())
    error.spiteful = Spiteful()  # type: ignore[attr-defined]
    got = journey(error)
    assert type(got) is ValueError
    assert got.args[0] == "the real one"


class AsksWhereItIs(Exception):
    """A constructor that works in the worker and nowhere else."""

    in_worker = True

    def __init__(self, message: str) -> None:
        if not self.in_worker:
            raise LookupError("no worker")
        super().__init__(message)
        self.worker_id = 3


def test_an_exception_whose_constructor_fails_in_the_main_process_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads again in the worker, as with `get_worker_info().id` in it, and not here."""
    failure = capture(raised(AsksWhereItIs("lost")), WHERE)
    monkeypatch.setattr(AsksWhereItIs, "in_worker", False)
    got = rebuild(failure)
    assert type(got) is AsksWhereItIs
    assert (got.args, facts(got)) == (("lost",), {"worker_id": 3})


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    path: str
    offset: int


def test_an_exception_that_lets_no_attribute_be_set_arrives_with_notes() -> None:
    """A frozen dataclass refuses `add_note`, and its own state."""
    got = journey(FrozenError("a.jpg", 7))
    assert type(got) is FrozenError
    assert (got.path, got.offset) == ("a.jpg", 7)
    assert notes_of(got)[0] == WHERE


class Elsewhere:
    """Of a module that only the worker finds."""

    def __repr__(self) -> str:
        return "from elsewhere"


def test_what_cannot_be_loaded_here_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """In arguments and attributes, beside what can; the worker could not have known."""
    monkeypatch.setattr(Elsewhere, "__module__", "only_in_the_worker")
    error = ValueError("bad", Elsewhere(), 7)
    error.found, error.count = Elsewhere(), 3  # type: ignore[attr-defined]
    with monkeypatch.context() as worker:
        worker.setitem(sys.modules, "only_in_the_worker", sys.modules[__name__])
        failure = capture(raised(error), WHERE)
    got = rebuild(failure)
    assert (type(got), got.args) == (ValueError, ("bad", "from elsewhere", 7))
    assert facts(got) == {"found": "from elsewhere", "count": 3}


class SpitefulError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_exception_that_cannot_be_shown_arrives() -> None:
    """Its own __str__ raises; type and args are there all the same."""
    got = journey(SpitefulError("text"))
    assert type(got) is SpitefulError
    assert got.args == ("text",)


class LoadsAsAnother(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return ValueError, self.args


def test_an_exception_that_pickles_into_another_arrives_as_itself() -> None:
    """What matters is what was raised, not what its __reduce__ makes of it."""
    got = journey(LoadsAsAnother("me"))
    assert type(got) is LoadsAsAnother
    assert got.args == ("me",)


# --- classes ------------------------------------------------------------------------------------------------------


def test_a_local_class_is_the_very_class_in_a_forked_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be imported, but it lives here too: an `except` clause for it catches it."""

    class Local(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a)
            self.b = b

    failure = capture(raised(Local(1, 2)), WHERE)
    monkeypatch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})  # the worker's, not ours
    got = rebuild(failure)
    assert type(got) is Local
    assert (got.args, got.b) == ((1,), 2)


def test_a_local_class_that_this_process_does_not_know_arrives_by_value(tmp_path: Path) -> None:
    """A worker that was started afresh made it: name, text and attributes are there."""
    program = """
        import pickle, sys
        from holdfast.workers.failures import capture

        def make():
            class Local(LookupError):
                pass
            return Local

        error = make()("missing", 3)
        error.hint = "look there"
        sys.stdout.buffer.write(pickle.dumps(tuple(capture(error, "where"))))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=True, timeout=PATIENCE_S
    )
    got = rebuild(Failure(*pickle.loads(done.stdout)))
    assert type(got).__name__ == "Local"
    assert isinstance(got, LookupError)
    assert (got.args, facts(got)) == (("missing", 3), {"hint": "look there"})


def test_a_class_that_cannot_be_found_at_all_becomes_a_runtime_error_that_names_it() -> None:
    """The last resort still says what it was."""
    failure = capture(raised(OtherArguments(7, detail="disk")), WHERE)
    lost = failure._replace(whole=None, module="surely.not.there", qualname="Vanished", class_by_value=None)
    got = rebuild(lost)
    assert type(got) is RuntimeError
    assert "surely.not.there.Vanished" in str(got)
    assert "failed with 7" in notes_of(got)[-1]


def test_a_name_that_leads_to_something_else_is_not_taken_for_the_class() -> None:
    """Only exception classes are raised."""
    failure = capture(raised(ValueError("x")), WHERE)
    got = rebuild(failure._replace(whole=None, module="os.path", qualname="join", class_by_value=None))
    assert type(got) is RuntimeError
    assert "os.path.join" in str(got)


# --- groups -------------------------------------------------------------------------------------------------------


def test_an_exception_group_arrives_with_its_members() -> None:
    """`except*` in the main process sees them."""
    got = journey(ExceptionGroup("two", [ValueError(1), ExceptionGroup("inner", [KeyError("k")])]))
    assert isinstance(got, ExceptionGroup)
    assert got.message == "two"
    assert got.subgroup(KeyError) is not None
    assert [type(member) for member in got.exceptions] == [ValueError, ExceptionGroup]


@pytest.mark.parametrize(
    "member", [OtherArguments(7, detail="disk"), ValueError("x", threading.Lock())], ids=["constructor", "argument"]
)
def test_an_exception_group_arrives_though_a_member_cannot_be_pickled(member: Exception) -> None:
    """Each member is rebuilt in its own way."""
    got = journey(ExceptionGroup("two", [KeyError("k"), member]))
    assert isinstance(got, ExceptionGroup)
    assert got.message == "two"
    assert [type(one) for one in got.exceptions] == [KeyError, type(member)]


def test_a_group_with_a_constructor_of_its_own_arrives() -> None:
    """A subclass that takes other arguments."""
    got = journey(OtherArgumentsGroup([ValueError(1), KeyError(2)]))
    assert isinstance(got, ExceptionGroup)
    assert [type(one) for one in got.exceptions] == [ValueError, KeyError]


# --- notes and tracebacks -----------------------------------------------------------------------------------------


def notes_of(error: BaseException) -> list[str]:
    return list(error.__notes__)


@pytest.mark.parametrize("error", [ValueError("x"), OtherArguments(1, detail="y")], ids=["whole", "in parts"])
def test_notes_of_the_user_are_kept_and_ours_come_after_them(error: BaseException) -> None:
    """One says where, one carries the worker's traceback."""
    error.add_note("the user's own")
    notes = notes_of(journey(error))
    assert notes[0] == "the user's own"
    assert notes[1] == WHERE
    assert notes[2].startswith("Original traceback, in the worker process:\nTraceback (most recent call last):\n")
    assert len(notes) == 3


def test_the_traceback_names_the_users_lines_and_the_error() -> None:
    """File, function, line, and the exception with its text at the end."""
    note = notes_of(journey(ValueError("the text")))[-1]
    assert f'File "{__file__}", line' in note
    assert "in raised" in note
    assert "raise error" in note
    assert note.endswith("ValueError: the text")


def test_the_traceback_tells_the_cause_and_the_context() -> None:
    """They do not travel as objects, but their text does."""
    try:
        try:
            int("seven")
        except ValueError as error:
            raise KeyError("column") from error
    except KeyError as error:
        note = notes_of(rebuild(capture(error, WHERE)))[-1]
    assert "invalid literal for int() with base 10: 'seven'" in note
    assert "The above exception was the direct cause of the following exception" in note


def test_the_traceback_begins_in_the_users_code() -> None:
    """Frames of ours at its top say nothing to the user."""
    ours = str(Path(failures.__file__).parent / "worker.py")
    namespace: dict[str, Any] = {"users": _users_function}
    exec(compile("def _fetch():\n    users()\n\ndef _load():\n    _fetch()\n", ours, "exec"), namespace)
    try:
        namespace["_load"]()
    except ValueError as error:
        # The frame of this test is above ours only because the test itself calls them.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        note = notes_of(rebuild(capture(error, WHERE)))[-1]
    assert ours not in note
    assert "_users_function" in note


def _users_function() -> None:
    raise ValueError("in the dataset")


def test_an_error_of_our_own_code_keeps_its_whole_traceback() -> None:
    """With no frame of the user's to begin with, all of it is shown."""
    ours = str(Path(failures.__file__).parent / "worker.py")
    namespace: dict[str, Any] = {}
    exec(compile("def _load():\n    raise ValueError('ours')\n", ours, "exec"), namespace)
    try:
        namespace["_load"]()
    except ValueError as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        note = notes_of(rebuild(capture(error, WHERE)))[-1]
    assert ours in note


def test_an_error_that_was_never_raised_can_be_captured() -> None:
    """It has no traceback."""
    got = rebuild(capture(ValueError("x"), WHERE))
    assert notes_of(got)[-1].endswith("ValueError: x")


def test_capturing_leaves_the_original_alone() -> None:
    """The worker's exception object is not changed by being looked at."""
    error = OtherArguments(1, detail="x")
    before = dict(vars(error))
    capture(raised(error), WHERE)
    assert vars(error) == before


def test_a_failure_is_plain_data() -> None:
    """It crosses the process as strings, bytes and numbers: nothing in it needs the user's classes to be read."""
    failure = capture(raised(OtherArguments(1, detail="x")), WHERE)
    assert {type(part) for part in failure} <= {str, bytes, int, float, bool, type(None)}
