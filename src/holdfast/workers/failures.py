"""Exceptions on their way from a worker to the user: the same type, the same state, and the facts beside it.

    worker: capture(error) ──► Failure (plain data) ──► main: rebuild(failure) ──► raise

An exception whose constructor wants other arguments is rebuilt without calling it. Attributes that cannot be pickled
arrive as their repr. A class that cannot be imported is looked up among the living exception classes, then by value.

Runs in: worker process (capture), main process (rebuild).
"""

from __future__ import annotations

import importlib
import pickle
import traceback
from collections.abc import Iterator
from functools import reduce
from pathlib import PurePath
from types import TracebackType
from typing import Any, NamedTuple

import cloudpickle

_OUR_FILES = PurePath(__file__).parent.parent


class Failure(NamedTuple):
    """An exception as plain data. `whole` is its pickle where that works both ways; the rest rebuilds it otherwise."""

    whole: bytes | None
    module: str
    qualname: str
    class_by_value: bytes | None
    args: bytes
    state: bytes
    traceback: str
    where: str


def capture(error: BaseException, where: str) -> Failure:
    """Take an exception apart in the worker. `where` becomes the first note in the main process."""
    kind = type(error)
    whole = _round_trip(error)
    text = "".join(traceback.format_exception(kind, error, _users_part(error.__traceback__)))
    args = _picklable_args(error.args)
    state = {name: value if _round_trip(value) else repr(value) for name, value in vars(error).items()}
    by_value = None if whole else _dumps_by_value(kind)
    return Failure(
        whole, kind.__module__, kind.__qualname__, by_value, pickle.dumps(args), pickle.dumps(state), text, where
    )


def rebuild(failure: Failure) -> BaseException:
    """The exception, in the main process, with notes that say where it came from."""
    error = _load_whole(failure) or _load_parts(failure)
    error.add_note(failure.where)
    error.add_note(f"Original traceback, in the worker process:\n{failure.traceback.rstrip()}")
    return error


# -- in the worker -----------------------------------------------------------------------------------------------------


def _round_trip(obj: object) -> bytes | None:
    """The pickle of an object, if it can be loaded again; also run for its failure, whatever that raises."""
    try:
        data = pickle.dumps(obj)
        again = pickle.loads(data)
    except Exception:
        return None
    if isinstance(obj, BaseException) and not (type(again) is type(obj) and repr(again.args) == repr(obj.args)):
        return None
    return data


def _picklable_args(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value if _round_trip(value) else repr(value) for value in args)


def _dumps_by_value(kind: type) -> bytes | None:
    try:
        return bytes(cloudpickle.dumps(kind))
    except Exception:
        return None


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames at its top."""
    inner = trace
    while inner is not None and PurePath(inner.tb_frame.f_code.co_filename).is_relative_to(_OUR_FILES):
        inner = inner.tb_next
    return inner or trace


# -- in the main process -----------------------------------------------------------------------------------------------


def _load_whole(failure: Failure) -> BaseException | None:
    if failure.whole is None:
        return None
    try:
        error = pickle.loads(failure.whole)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _load_parts(failure: Failure) -> BaseException:
    kind = _find_class(failure)
    args, state = pickle.loads(failure.args), pickle.loads(failure.state)
    if kind is None:
        return RuntimeError(f"{failure.module}.{failure.qualname}: {', '.join(map(str, args))}")
    error = BaseException.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def _find_class(failure: Failure) -> type[BaseException] | None:
    return _import_class(failure) or _living_class(failure) or _class_by_value(failure)


def _import_class(failure: Failure) -> type[BaseException] | None:
    try:
        found: object = reduce(getattr, failure.qualname.split("."), importlib.import_module(failure.module))
    except (ImportError, AttributeError):
        return None
    return _exception_class(found)


def _living_class(failure: Failure) -> type[BaseException] | None:
    """A class defined inside a function cannot be imported, but it lives in this process too if it was forked."""
    wanted = (failure.module, failure.qualname)
    return next(
        (kind for kind in _all_subclasses(BaseException) if (kind.__module__, kind.__qualname__) == wanted), None
    )


def _all_subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in kind.__subclasses__():
        yield child
        yield from _all_subclasses(child)


def _class_by_value(failure: Failure) -> type[BaseException] | None:
    if failure.class_by_value is None:
        return None
    try:
        kind = cloudpickle.loads(failure.class_by_value)
    except Exception:
        return None
    return _exception_class(kind)


def _exception_class(found: object) -> type[BaseException] | None:
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
