"""The crash page: shared memory into which the kernel writes the registers of a worker that dies of a fault.

    parent   page = CrashPage.create() ── descriptor ──► worker   page.install(stack_fd)
    worker   faults ► kernel: siginfo and registers onto the page ► faulthandler: Python stacks to stack_fd ► dies
    parent   page.read(exit_signal) ──► Frame

The page is the alternate stack of the worker's main thread, on a memfd. faulthandler's handlers stay in charge; they
are only set again with SA_SIGINFO, without which the kernel leaves siginfo out. No code of ours runs in a handler.

- SIGTRAP and SIGTERM are recorded too, where they have no handler: faulthandler writes the stacks, and lets them do
  what they did before.
- Whoever sets a handler of a fatal signal after `install` undoes it for that signal, and that stays so: a runtime that
  lives on its faults needs it. `renew` takes back only what was set to the default since.
- The mapping is never undone: not at exit either, when a worker may crash as well.
- A process that the worker forks through Python gets the stack and the faulthandler of before `install` back, so its
  crash leaves no trace here. One forked in C and not followed by exec shares the page: its frame is taken for the
  worker's only if the worker then dies of the same signal in another thread than its main one.
- Faults in other threads than the main one leave no frame (an alternate stack belongs to a thread), only stacks.
- Where this is not x86_64 Linux with glibc, `install` enables faulthandler, and `missing` says what that costs.

Runs in: main | supervisor process (create, read), worker process (install).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import mmap
import os
import platform
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from enum import IntEnum

from holdfast.diagnosis.evidence import Frame
from holdfast.diagnosis.native.kernel_frame import find_frame

STACK_BYTES = 256 * 1024
"""Many times what faulthandler and the largest vector state need. Memory is taken only where it is written."""
_NOTE = struct.Struct("<QII")  # base, pid, state: lies above the stack, out of reach of its growth
_PAGE_BYTES = STACK_BYTES + mmap.PAGESIZE

_OF_FAULTHANDLER: frozenset[int] = frozenset(
    getattr(signal, name) for name in ("SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV") if hasattr(signal, name)
)
_TRAP_SIGNAL: int = getattr(signal, "SIGTRAP", 5)
_SENT_SIGNAL: int = signal.SIGTERM
"""The one that nothing but another process causes, and of which the kernel says, to a handler alone, which."""
FATAL_SIGNALS: frozenset[int] = _OF_FAULTHANDLER | {_TRAP_SIGNAL}
"""Those of a crash."""
RECORDED_SIGNALS: frozenset[int] = FATAL_SIGNALS | {_SENT_SIGNAL}
_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000


class _State(IntEnum):
    NOT_INSTALLED = 0
    WITH_REGISTERS = 1
    STACKS_ONLY = 2


class CrashPage:
    """One worker's page. It is known to other processes by its descriptor, which the owner closes; -1: none here."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> CrashPage:
        if not can_have_registers():
            return cls(-1)
        page = cls(os.memfd_create("holdfast-crash", os.MFD_CLOEXEC))
        os.ftruncate(page.fd, _PAGE_BYTES)
        return page

    def install(self, stack_fd: int) -> None:
        """In the worker's main thread, before any code of the user's: have a fatal signal write here."""
        was_enabled = faulthandler.is_enabled()
        faulthandler.disable()  # enabling it twice would leave alone a handler that somebody else has set since
        faulthandler.enable(file=stack_fd, all_threads=True)
        if self.fd < 0:
            return
        if not can_have_registers():
            self._note(0, _State.STACKS_ONLY)
            return
        base = _map_for_ever(self.fd, _PAGE_BYTES)
        self._note(base, _State.WITH_REGISTERS)
        _forked.give_back(_set_stack(_Stack(base, 0, STACK_BYTES)), was_enabled)
        _handlers.take(_OF_FAULTHANDLER)
        for number in (_TRAP_SIGNAL, _SENT_SIGNAL):
            if signal.getsignal(number) is signal.SIG_DFL:  # else it is the user's to handle
                faulthandler.register(number, file=stack_fd, all_threads=True, chain=True)  # and then die of it
                _handlers.take({number})

    def renew(self, stack_fd: int) -> None:
        """Later in the same thread, when the user's code has run: the same again, but for handlers that it has set."""
        base, pid, state = self._noted()
        if state != _State.WITH_REGISTERS or pid != os.getpid():
            faulthandler.enable(file=stack_fd, all_threads=True)
            return
        with _handlers.of_others_kept():
            faulthandler.enable(file=stack_fd, all_threads=True)
        _handlers.renew()
        _set_stack(_Stack(base, 0, STACK_BYTES))

    def read(self, exit_signal: int) -> Frame | None:
        """In the parent, after the death: what the kernel wrote, if it is of the signal that the worker died of.

        `sender_pid` is of another process: None where the worker sent the signal to itself, as abort() does.
        """
        base, pid, state = self._noted()
        if state != _State.WITH_REGISTERS:
            return None
        return find_frame(os.pread(self.fd, STACK_BYTES, 0), base, STACK_BYTES, exit_signal, pid)

    def missing(self, exit_signal: int) -> str:
        """Why `read` found no frame, in words for `Evidence.missing`; empty where there is none to be expected."""
        if exit_signal not in RECORDED_SIGNALS:
            return ""
        return _WHY_NO_FRAME.get(self._noted()[2], "registers: the worker wrote over its crash page")

    def clear(self) -> None:
        """Forget the last life, and give its memory back: for a page that the next worker uses again."""
        if self.fd >= 0:
            os.ftruncate(self.fd, 0)
            os.ftruncate(self.fd, _PAGE_BYTES)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _note(self, base: int, state: _State) -> None:
        os.pwrite(self.fd, _NOTE.pack(base, os.getpid(), state), STACK_BYTES)

    def _noted(self) -> tuple[int, int, int]:
        """Base, pid and state. A worker in ruins may have written or cut off anything."""
        if self.fd < 0:
            return 0, 0, _State.STACKS_ONLY
        note = os.pread(self.fd, _NOTE.size, STACK_BYTES)
        return _NOTE.unpack(note) if len(note) == _NOTE.size else (0, 0, _State.NOT_INSTALLED)


_WHY_NO_FRAME: dict[int, str] = {
    _State.NOT_INSTALLED: "registers: the worker died before it was ready to have them recorded",
    _State.WITH_REGISTERS: "registers: not of the main thread, or another handler of this signal was set later",
    _State.STACKS_ONLY: "registers: recorded only on x86_64 Linux with glibc",
}


def can_have_registers() -> bool:
    """Whether the layouts in this module are those of this platform."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):  # another libc does not know the name
        return False


class _Stack(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Forked:
    """Undoes an installation in the processes that the worker forks: they are no workers."""

    def __init__(self) -> None:
        self._stack_before: _Stack | None = None
        self._was_enabled = False
        self._is_registered = False  # Python cannot take a hook back: it is set once, and inherited

    def give_back(self, stack: _Stack, was_enabled: bool) -> None:
        if not self._is_registered:
            os.register_at_fork(after_in_child=self._undo)
        self._stack_before, self._was_enabled, self._is_registered = stack, was_enabled, True

    def _undo(self) -> None:
        if self._stack_before is None:
            return
        _set_stack(self._stack_before)
        self._stack_before = None
        with _handlers.of_others_kept():
            for number in (_TRAP_SIGNAL, _SENT_SIGNAL):
                faulthandler.unregister(number)
            if self._was_enabled:
                faulthandler.enable(file=2, all_threads=True)
            else:
                faulthandler.disable()


_forked = _Forked()


class _Handlers:
    """Faulthandler's handlers as we have set them, and those that others have set since."""

    def __init__(self) -> None:
        self._ours: dict[int, _Action] = {}

    def take(self, numbers: Iterable[int]) -> None:
        """Faulthandler's handlers, which it has just set for these signals, get siginfo from now on."""
        for number in numbers:
            action = _action_of(number)
            action.flags |= _SA_SIGINFO | _SA_ONSTACK
            _set_action(number, action)
            self._ours[number] = action

    def renew(self) -> None:
        """Set ours again where nobody else's is."""
        for number, action in self._ours.items():
            if not self._is_of_others(number, _action_of(number)):
                _set_action(number, action)

    @contextlib.contextmanager
    def of_others_kept(self) -> Iterator[None]:
        """Faulthandler sets all of its signals, or none: what it takes from others meanwhile is given back."""
        actions = {number: _action_of(number) for number in self._ours}
        try:
            yield
        finally:
            for number, action in actions.items():
                if self._is_of_others(number, action):
                    _set_action(number, action)

    def _is_of_others(self, number: int, action: _Action) -> bool:
        return action.handler not in (None, self._ours[number].handler)  # None is SIG_DFL


_handlers = _Handlers()


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _map_for_ever(fd: int, nbytes: int) -> int:
    """Not by Python's mmap: that one is undone when the interpreter ends, and keeps a second descriptor."""
    libc = _libc()
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    address: int | None = libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map the crash page")
    return address


def _set_stack(stack: _Stack) -> _Stack:
    """Make `stack` this thread's alternate signal stack. Returns the one before."""
    before = _Stack()
    if _libc().sigaltstack(ctypes.byref(stack), ctypes.byref(before)):
        raise OSError(ctypes.get_errno(), "cannot set the alternate signal stack")
    return before


def _action_of(number: int) -> _Action:
    action = _Action()
    if _libc().sigaction(number, None, ctypes.byref(action)):
        raise OSError(ctypes.get_errno(), f"cannot read the handler of signal {number}")
    return action


def _set_action(number: int, action: _Action) -> None:
    if _libc().sigaction(number, ctypes.byref(action), None):
        raise OSError(ctypes.get_errno(), f"cannot set the handler of signal {number}")
