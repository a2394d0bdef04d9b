"""Shared memory that is found by its name, where a descriptor cannot be handed from one process to another.

    holdfast-4711-68a1b2c3-f0000002-7-12
             │    │        │        │ └ which one
             │    │        │        └ who made it: 0 the main process, k its k-th worker process
             │    │        └ the pid namespace, where there are such things (Linux)
             │    └ when the main process started, in seconds
             └ its pid

A name belongs to the main process, whoever made it. It lives from the moment the memory is made until every process
that needs it has opened it. What a `kill -9` leaves is removed by the workers that outlive their main process, and by
the next start (`sweep`), which finds the names of main processes that are gone. Windows has nothing to remove: there
a name goes with the last process that has it open.

Runs in: main | worker process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

_PREFIX = "hf" if sys.platform == "darwin" else "holdfast"  # macOS has room for 30 characters
_SHM = Path("/dev/shm")
_TRIED_NUMBERS = 4096  # where names cannot be listed
_CLOCK_TOLERANCE_S = 10.0  # a start time is reckoned from the boot time, which follows the clock
_numbers = itertools.count()


class Namer:
    """Gives out new names. `maker` tells apart the processes that make them for one main process."""

    def __init__(self, owner: str, maker: int) -> None:
        self.prefix = f"{owner}-{maker:x}-"

    def __call__(self) -> str:
        return f"{self.prefix}{next(_numbers):x}"


def this_owner() -> str:
    """What the names of this process, as a main process, begin with."""
    return _owner_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _owner_of(pid: int) -> str:
    started = int(psutil.Process(pid).create_time())
    return "-".join((_PREFIX, str(pid), f"{started:x}", *_namespace()))


def _namespace() -> tuple[str, ...]:
    """Containers may share names and not pids: a pid means nothing outside its namespace."""
    try:
        return (f"{os.stat('/proc/self/ns/pid').st_ino:x}",)  # noqa: PTH116  (not a file of anyone's)
    except OSError:
        return ()


# -- names nobody will remove ------------------------------------------------------------------------------------------


def sweep() -> None:
    """Remove what main processes that were killed have left."""
    owners = {name.rsplit("-", 2)[0] for name in _listed(f"{_PREFIX}-")}
    for owner in owners:
        if not _may_live(owner):
            remove_all(f"{owner}-")


def _may_live(owner: str) -> bool:
    try:
        _, pid, started, *namespace = owner.split("-")
        if tuple(namespace) != _namespace():
            return True  # not ours to judge
        return bool(abs(psutil.Process(int(pid)).create_time() - int(started, 16)) < _CLOCK_TOLERANCE_S)
    except psutil.NoSuchProcess:
        return False
    except (ValueError, psutil.Error):
        return True


def remove_all(prefix: str) -> None:
    """Remove every name with this prefix: of an owner, or of one maker, whose names go by number."""
    names = _listed(prefix) if _SHM.is_dir() else (f"{prefix}{number:x}" for number in range(_TRIED_NUMBERS))
    for name in names:
        with contextlib.suppress(OSError):
            remove(name)


def _listed(prefix: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from [name for name in os.listdir(_SHM) if name.startswith(prefix)]  # noqa: PTH208


# -- one name ----------------------------------------------------------------------------------------------------------

if sys.platform == "win32":

    def create(name: str, nbytes: int) -> None:
        """Nothing to be done: who opens the name first makes it."""

    def open_fd(name: str) -> int:
        """There is no descriptor: the memory is mapped by its name."""
        return -1

    def remove(name: str) -> None:
        """Nothing to be done: it goes with the last process that has it open."""

    def claim(name: str) -> int | str:
        return name

    def hold(name: str) -> object:
        """Keeps the memory there while this object lives, whoever else lets go of it."""
        return mmap.mmap(-1, 1, tagname=name)

else:
    import _posixshmem  # type: ignore[import-not-found]

    def create(name: str, nbytes: int) -> None:
        """Make memory of this name, all zeros."""
        fd = _posixshmem.shm_open(f"/{name}", os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
        try:
            os.ftruncate(fd, nbytes)
        except BaseException:
            remove(name)
            raise
        finally:
            os.close(fd)

    def open_fd(name: str) -> int:
        return int(_posixshmem.shm_open(f"/{name}", os.O_RDWR, mode=0o600))

    def remove(name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            _posixshmem.shm_unlink(f"/{name}")

    def claim(name: str) -> int | str:
        """Open what another process made for this one alone; the name goes at once."""
        try:
            return open_fd(name)
        finally:
            remove(name)

    def hold(name: str) -> object:
        """Nothing to be kept: memory stays while its name or any descriptor of it does."""
        return None
