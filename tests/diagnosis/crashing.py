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

from holdfast.diagnosis.native import crash_page
from holdfast.diagnosis.native.crash_page import CrashPage
from holdfast.diagnosis.native.loads import LibraryReporter
from holdfast.diagnosis.native.mappings import LibraryPage, mapping_at, of_self

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


def recover_from_a_fault(path: str) -> None:
    """As a runtime does that lives on its faults. Ends with what it has recovered to."""
    os._exit(ctypes.CDLL(path).probe())


def abort_beside_a_runtime(path: str) -> None:
    os.abort()


def recover_in_a_forked_child(path: str) -> None:
    pid = os.fork()
    if not pid:
        recover_from_a_fault(path)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def set_handlers_of_a_runtime(path: str) -> None:
    ctypes.CDLL(path).take_faults()


def read_wild_after_the_default_was_set() -> None:
    read_wild()


def read_wild_after_stacks_were_turned_off() -> None:
    read_wild()


def terminate_after_the_default_was_set() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def set_the_default() -> None:
    for number in (signal.SIGSEGV, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def look_at_what_a_forked_child_has() -> None:
    """Ends with how often the page is mapped, and 10 more if a forked child has its stack, 20 if it writes stacks."""
    pid = os.fork()
    if not pid:
        os._exit(10 * _has_its_stack_on_the_page() + 20 * faulthandler.is_enabled())
    found = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(found + Path("/proc/self/maps").read_text().count("holdfast-crash"))


def _has_its_stack_on_the_page() -> bool:
    stack = crash_page._Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    mapping = mapping_at(of_self(), stack.base or 0)
    return mapping is not None and "holdfast-crash" in mapping.path


BEFORE_INSTALL: dict[Callable[..., None], Callable[[], None]] = {
    read_wild_after_other_handlers: set_other_handlers,
    look_at_what_a_forked_child_has: faulthandler.disable,
}
IN_WORKER_INIT: dict[Callable[..., None], Callable[..., None]] = {
    recover_from_a_fault: set_handlers_of_a_runtime,
    recover_in_a_forked_child: set_handlers_of_a_runtime,
    abort_beside_a_runtime: set_handlers_of_a_runtime,
    read_wild_after_the_default_was_set: set_the_default,
    terminate_after_the_default_was_set: set_the_default,
    read_wild_after_stacks_were_turned_off: faulthandler.disable,
}


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
        IN_WORKER_INIT.get(crash, lambda *_: None)(*args)
        given.crash.renew(given.stacks)
        crash(*args)
    except BaseException as error:
        os.write(2, f"it did not crash but raised {error!r}\n".encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    crash_fd, library_fd, stack_fd = map(int, sys.argv[1:4])
    inherited = Given(CrashPage(crash_fd), LibraryPage(library_fd), stack_fd)
    crash_as_a_worker(inherited, globals()[sys.argv[4]], sys.argv[5:], forked=False)
