"""Ways to crash. Each is a function of texts: a forked child calls it, a new interpreter runs this file with its name.

Runs in: the children of the test process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib.util
import mmap
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from holdfast.diagnosis.native.crash_page import CrashPage
from holdfast.diagnosis.native.loads import LibraryReporter
from holdfast.diagnosis.native.mappings import LibraryPage

WILD_ADDRESS = 0x123450000
UNMAPPED_BITS = 1 << 60
READY_TEXT = b"ready"


def read_wild() -> None:
    ctypes.string_at(WILD_ADDRESS, 1)


def write_wild() -> None:
    ctypes.memset(WILD_ADDRESS, 1, 1)


def write_read_only() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[0] = 1  # a page that was never touched is not there, and its fault says that rather than read-only
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_READ)
    ctypes.memset(address, 1, 1)


def execute_data() -> None:
    data = ctypes.create_string_buffer(64)
    ctypes.CFUNCTYPE(None)(ctypes.addressof(data))()


def read_no_address() -> None:
    """An address that no x86_64 of today can have."""
    ctypes.string_at(UNMAPPED_BITS, 1)


def abort() -> None:
    os.abort()


def overflow_in_repr() -> None:
    class Endless:
        def __repr__(self) -> str:
            return repr([self])

    sys.setrecursionlimit(10**9)
    repr(Endless())


def read_truncated(path: str) -> None:
    with Path(path).open("w+b") as file:
        file.truncate(2 * mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(mmap.PAGESIZE)
        mapped[mmap.PAGESIZE]


def wait_for_a_signal(ready_fd: str) -> None:
    os.write(int(ready_fd), READY_TEXT)
    while True:
        signal.pause()


def segfault_itself() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def call_library(path: str, function: str, *numbers: str) -> None:
    """Loads the library within the crashing call."""
    getattr(ctypes.CDLL(path), function)(*(ctypes.c_long(int(number)) for number in numbers))


def call_with_memory(path: str, function: str) -> None:
    getattr(ctypes.CDLL(path), function)(ctypes.create_string_buffer(4096))


def import_extension(path: str) -> None:
    spec = importlib.util.spec_from_file_location("bad_extension", path)
    assert spec is not None
    importlib.util.module_from_spec(spec)


def crash_in_thread() -> None:
    thread = threading.Thread(target=read_wild)
    thread.start()
    thread.join()


def crash_in_thread_after_a_child_crashed() -> None:
    pid = os.fork()
    if not pid:
        read_wild()
        os._exit(0)
    os.waitpid(pid, 0)
    crash_in_thread()


def die_after_a_child_loaded_a_library(path: str) -> None:
    pid = os.fork()
    if not pid:
        ctypes.CDLL(path)
        os._exit(0)
    os.waitpid(pid, 0)
    read_wild()


def read_wild_after_other_handlers() -> None:
    read_wild()


def set_other_handlers() -> None:
    """As torch and others do, in a process that had faulthandler enabled before."""
    faulthandler.enable()
    signal.signal(signal.SIGSEGV, lambda *_: None)


BEFORE_INSTALL: dict[Callable[..., None], Callable[[], None]] = {read_wild_after_other_handlers: set_other_handlers}


class Given(NamedTuple):
    """What a worker is given to write on."""

    crash: CrashPage
    libraries: LibraryPage
    stacks: int


def crash_as_a_worker(given: Given, crash: Callable[..., None], args: Sequence[str], forked: bool) -> NoReturn:
    """Install what a worker installs, and crash. A crash that does not come is exit status 0."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        BEFORE_INSTALL.get(crash, lambda: None)()
        LibraryReporter(given.libraries, forked)
        given.crash.install(given.stacks)
        crash(*args)
    except BaseException as error:
        os.write(2, f"it did not crash but raised {error!r}\n".encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    crash_fd, library_fd, stack_fd = map(int, sys.argv[1:4])
    inherited = Given(CrashPage(crash_fd), LibraryPage(library_fd), stack_fd)
    crash_as_a_worker(inherited, globals()[sys.argv[4]], sys.argv[5:], forked=False)
