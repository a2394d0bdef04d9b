"""Exceptions on their way from a worker to the user: the same type, the same state, and the facts beside it.

    worker: capture(error) ──► Failure (plain data) ──► main: rebuild(failure) ──► raise

An exception whose constructor wants other arguments is rebuilt without calling it. Attributes that cannot be pickled,
or cannot be loaded in the main process, arrive as their repr. A class that cannot be imported is looked up among the
living exception classes, then by value.

Runs in: worker process (capture), main process (rebuild).
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pickle
import time
import traceback
from collections.abc import Iterator
from functools import reduce
from pathlib import PurePath
from types import GetSetDescriptorType, MemberDescriptorType, TracebackType
from typing import Any, NamedTuple

import cloudpickle

from holdfast.diagnosis import descriptors
from holdfast.workers import limits

_OUR_FILES = PurePath(__file__).parent.parent


class Failure(NamedTuple):
    """An exception as plain data. `whole` is its pickle where that works both ways; the rest rebuilds it otherwise.

    What loads in the worker may still not load in the main process: a constructor may ask where it is.
    """

    whole: bytes | None
    module: str
    qualname: str
    class_by_value: bytes | None
    args: bytes  # as `_pack` gives each of them, and of the next
    state: bytes  # its __dict__, and what the built-in classes keep outside of that (errno, filename, start, name, ...)
    members: bytes  # of an exception group: their failures
    traceback: str
    where: str
    phase: int = 0  # a `board.Phase`: what the worker was doing
    position: int = -1  # of the sample in hand, in its unit or in the worker's stream
    memory: tuple[int, int, int] | None = None  # of a worker that has a limit: that, what it used of it, what it kept
    descriptors: str = ""  # who held them, where there were none left
    is_refusal: bool = False  # of memory, by that limit
    raised_at: float = 0.0  # time.time()


def capture(error: BaseException, where: str) -> Failure:
    """Take an exception apart in the worker. `where` becomes the first note in the main process."""
    kind = type(error)
    text = "".join(traceback.format_exception(kind, error, _users_part(error.__traceback__)))
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    args = (error.message,) if isinstance(error, BaseExceptionGroup) else error.args
    return Failure(
        whole=_round_trip(error),
        module=kind.__module__,
        qualname=kind.__qualname__,
        class_by_value=_dumps_by_value(kind),
        args=pickle.dumps([_pack(value) for value in args]),
        state=pickle.dumps({name: _pack(value) for name, value in _state_of(error).items()}),
        members=pickle.dumps([capture(member, "a member of the group") for member in members]) if members else b"",
        traceback=text,
        where=where,
        memory=limits.memory_use(),
        descriptors=descriptors.held() if _is_of_descriptors(error) else "",
        is_refusal=limits.is_refusal(error),
        raised_at=time.time(),
    )


def rebuild(failure: Failure, *, tells_traceback: bool = True) -> BaseException:
    """The exception, in the main process, with notes that say where it came from."""
    error = _restore(failure)
    add_note(error, failure.where)
    if tells_traceback:
        add_note(error, f"Original traceback, in the worker process:\n{failure.traceback.rstrip()}")
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception of the user's, whatever its class is."""
    try:
        error.add_note(note)
    except Exception:  # a frozen dataclass: it allows no attribute to be set
        object.__setattr__(error, "__notes__", [*getattr(error, "__notes__", ()), note])


# -- in the worker -----------------------------------------------------------------------------------------------------


def _is_of_descriptors(error: BaseException) -> bool:
    """Whether it says that there are none left; whose, only counting tells."""
    if getattr(error, "errno", None) == errno.EMFILE:
        return True
    try:
        return os.strerror(errno.EMFILE) in str(error)
    except Exception:  # it is the user's, and may be of any class
        return False


def _round_trip(obj: object) -> bytes | None:
    """The pickle of an object, if it can be loaded again; also run for its failure, whatever that raises."""
    try:
        data = pickle.dumps(obj)
        again = pickle.loads(data)
        same = not isinstance(obj, BaseException) or (type(again) is type(obj) and repr(again.args) == repr(obj.args))
    except Exception:
        return None
    return data if same else None


def _pack(value: object) -> tuple[bytes, str]:
    """Its pickle, nothing if it has none, and what to say where that cannot be loaded."""
    try:
        said = repr(value)
    except Exception:
        said = f"<{type(value).__module__}.{type(value).__qualname__} object>"
    return _round_trip(value) or b"", said


def _state_of(error: BaseException) -> dict[str, Any]:
    """Its attributes, and the fields that built-in exceptions keep in C."""
    fields = {
        name
        for base in type(error).__mro__
        if base.__module__ == "builtins" and base not in (BaseException, object)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType | GetSetDescriptorType) and not name.startswith("__")
    }
    found = {name: getattr(error, name, None) for name in fields}
    return {name: value for name, value in found.items() if value is not None} | vars(error)


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


def _restore(failure: Failure) -> BaseException:
    return _load_whole(failure) or _load_parts(failure)


def _load_whole(failure: Failure) -> BaseException | None:
    if failure.whole is None:
        return None
    try:
        error = pickle.loads(failure.whole)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _unpack(packed: tuple[bytes, str]) -> Any:
    """The value, or its repr: a module that it needs may be where only the worker looks for it."""
    data, said = packed
    try:
        return pickle.loads(data)
    except Exception:
        return said


def _load_parts(failure: Failure) -> BaseException:
    """Make the exception without calling its constructor, which may want anything."""
    kind = _find_class(failure)
    args = tuple(map(_unpack, pickle.loads(failure.args)))
    if kind is None:
        return RuntimeError(f"{failure.module}.{failure.qualname}: {', '.join(map(str, args))}")
    if failure.members:
        args = (*args, [_restore(member) for member in pickle.loads(failure.members)])
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    error: BaseException = builtin.__new__(kind, *args)
    if issubclass(kind, OSError):
        OSError.__init__(error, *args)  # does nothing where the class has left __init__ alone
    state = {name: _unpack(packed) for name, packed in pickle.loads(failure.state).items()}
    if not failure.members:
        state["args"] = args
    for name, value in state.items():
        with contextlib.suppress(AttributeError, TypeError):  # read-only
            object.__setattr__(error, name, value)  # also where the class, a frozen dataclass, allows nobody to
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
