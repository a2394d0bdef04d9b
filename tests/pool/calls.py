"""What the workers of the pool tests are asked to do, and the pools they are asked through.

Runs in: the test process and the workers.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import holdfast
from hungry import fill_gaps
from waits import PATIENCE_S, wait_until

METHODS = ("fork", "spawn", "forkserver", "portable")
MakePool = Callable[..., concurrent.futures.Executor]


def ours(method: str) -> MakePool:
    """Makes a pool of ours."""
    if method == "portable":
        return functools.partial(holdfast.ProcessPoolExecutor, backend="portable")
    return functools.partial(holdfast.ProcessPoolExecutor, mp_context=multiprocessing.get_context(method))


def theirs(method: str) -> MakePool:
    """Makes one of the standard library's; the portable backend spawns."""
    context = multiprocessing.get_context("spawn" if method == "portable" else method)
    return functools.partial(concurrent.futures.ProcessPoolExecutor, mp_context=context)


def square(number: int) -> int:
    return number * number


def describe(*args: Any, **kwargs: Any) -> str:
    return f"{args!r} {sorted(kwargs.items())!r}"


def pid_of_worker(*_: object) -> int:
    return os.getpid()


def fail(error: BaseException) -> None:
    raise error


class OddError(Exception):
    """Its constructor wants more than it hands on: such exceptions end the standard library's pool."""

    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


def fail_oddly() -> None:
    raise OddError(5, text="odd")


def fail_from_cause() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("worse") from error


def fail_at(bad: int, number: int) -> int:
    if number == bad:
        raise ValueError(f"not {number}")
    return number


def wait_for(path: Path) -> str:
    """Until the file is there: never for ever."""
    path.with_suffix(".begun").touch()
    wait_until(path.exists, PATIENCE_S, str(path))
    return "done"


def has_begun(path: Path) -> bool:
    return path.with_suffix(".begun").exists()


def die(how: str) -> None:
    """End this process, or never return."""
    if how == "os._exit":
        os._exit(3)
    if how == "null pointer":
        ctypes.string_at(0)
    if how == "hang":
        while True:
            time.sleep(0.01)
    os.kill(os.getpid(), signal.Signals[how])


def die_at(bad: int, how: str, number: int) -> int:
    if number == bad:
        die(how)
    return number


def die_once(mark: Path, how: str) -> str:
    """The first time; the second call returns."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return "survived"
    die(how)
    return ""


def kill_supervisor() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    while True:  # the kernel ends this worker with it
        time.sleep(0.01)


def make_lock() -> threading.Lock:
    """A result that cannot be pickled."""
    return threading.Lock()


def hungry(number: int) -> int:
    """Takes 8 GiB."""
    return int(np.ones(1 << 30)[number])


def double(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array * 2


def overwrite(array: np.ndarray[Any, Any]) -> float:
    """Changes what it was given."""
    array[:] = -1
    return float(array[0])


_kept: list[Any] = []


def keep(value: Any) -> list[float]:
    """Keeps every argument; returns what the kept ones hold now."""
    _kept.append(value)
    return [float(each.reshape(-1)[-1]) for each in _kept]


def keep_bytes(nbytes: int) -> int:
    """In this worker, for good, and not where its heap has room already."""
    _kept.extend(fill_gaps())
    _kept.append(np.ones(nbytes, dtype=np.uint8))
    return os.getpid()


def take_bytes(nbytes: int) -> int:
    """For as long as the call takes."""
    return int(np.ones(nbytes, dtype=np.uint8)[-1])


def child_of_worker() -> int:
    """What a process that the worker starts gives back."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(square, (7,))


def fork_and_come_back(how: str) -> tuple[str, int]:
    """In two processes: in the one that was forked, too, unless it leaves in another way."""
    child = os.fork()
    if child == 0:
        if how == "raises":
            raise ValueError("of the fork")
        if how == "exits":
            sys.exit(5)
        return "of the fork", 0
    return "of the worker", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def nested(number: int) -> list[int]:
    with holdfast.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(square, range(number)))


_initialized: list[Any] = []


def initialize(*values: Any) -> None:
    _initialized.extend(values)


def initialized() -> list[Any]:
    return _initialized


def initialize_badly() -> None:
    raise OSError("no such device")


def die_in_initializer() -> None:
    os._exit(4)


def leave_interpreter(status: int) -> None:
    sys.exit(status)


def interrupt() -> None:
    raise KeyboardInterrupt
