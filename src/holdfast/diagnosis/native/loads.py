"""Noticing in a worker that it has loaded a library, so that its page of mappings is right when it crashes.

    LibraryWatch       asks the dynamic linker for its count of loads: about a microsecond, for between two samples
    after_each_load    told right after ctypes or an import has loaded one, for a crash within the same sample

The linker's count is read without a line of Python, and that is no matter of speed. The linker holds its lock while it
asks us, and a Python function may be made to hand over the interpreter's lock there, to a thread which imports a
library and waits for the linker's: neither would ever go on. So the callback is an `attrgetter`, called through
`PyDLL`: C from end to end, which never lets go of the interpreter.

Not noticed before the next look: a library loaded by native code itself (dlopen in C, cffi). Not at all: one that
crashes in its own static constructors, before its loader returns.

Runs in: worker process. `after_each_load` changes the process it runs in; call it nowhere else.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import os
import sys
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from holdfast.diagnosis.native.mappings import LibraryPage, text_of_self

_FILES_EVERY_S = 1.0  # a dataset may map a file for each sample, and the list takes a millisecond
_LOOK_EVERY_S = 0.02


class _LoadedObject(ctypes.Structure):
    """struct dl_phdr_info, as far as it is read. `adds` counts all loads since the start of the process."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("num_headers", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    )


# The linker hands over three arguments, of which a function in C may look at the first alone. What it returns is not
# zero, so the linker asks for no second object and gives it to us.
_OfFirstObject = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LoadedObject))


class LibraryWatch:
    """Tells whether libraries were loaded since it was last asked; first of all, since it was made."""

    def __init__(self) -> None:
        self._callback = _OfFirstObject(attrgetter("contents.adds"))
        self._iterate = getattr(ctypes.PyDLL(None), "dl_iterate_phdr", None) if sys.platform == "linux" else None
        self._adds = self._count()

    def changed(self) -> bool:
        before, self._adds = self._adds, self._count()
        return before != self._adds

    def _count(self) -> int:
        return 0 if self._iterate is None else int(self._iterate(self._callback, None))


class LibraryReporter:
    """Keeps a worker's page right. `look` is for between two samples or batches, and costs next to nothing.

    Files that numpy maps (`memmap`, `load(mmap_mode=...)`) are noted too. (An audit hook would see Python's own mmap as
    well, but it slows down every `id()`, `open()` and `marshal.loads()` of the process by half a microsecond.)
    """

    def __init__(self, page: LibraryPage, forked: bool) -> None:
        self._page = page
        self._pid = os.getpid()
        self._watch = LibraryWatch()
        self._next_look_s = 0.0
        self._next_file_s = 0.0
        if not forked:  # a forked worker has, so far, what its parent has
            page.write(text_of_self())
        after_each_load(self._look_now)
        after_each_memmap(self._note_file)

    def look(self) -> None:
        """Now and then, for what was loaded in a way that does not announce itself."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_EVERY_S
            self._look_now()

    def _look_now(self) -> None:
        if self._watch.changed():
            self._write()

    def _note_file(self) -> None:
        """A dataset that maps a file for each sample is not to pay for each."""
        now_s = time.monotonic()
        if now_s >= self._next_file_s:
            self._next_file_s = now_s + _FILES_EVERY_S
            self._write()

    def _write(self) -> None:
        """Never raises: that a crash will be told less well is no reason to fail the sample in hand."""
        if os.getpid() == self._pid:  # the page is not of a process that the worker forked
            with contextlib.suppress(OSError):
                self._page.write(text_of_self())


_told: list[Callable[[], None]] = []  # at most one; a list, so that the wrappers see a later one
_told_of_files: list[Callable[[], None]] = []  # the same


def after_each_load(callback: Callable[[], None]) -> None:
    """Have `callback` called after each load by ctypes or by an import, instead of an earlier one."""
    if not _told:
        _wrap(ctypes.CDLL, "__init__", before=None)
        _wrap(importlib.machinery.ExtensionFileLoader, "create_module", before=_open_early)
        _wrap(importlib.machinery.ExtensionFileLoader, "exec_module", before=None)
    _told[:] = [callback]


def after_each_memmap(callback: Callable[[], None]) -> None:
    """The same for files that numpy maps, if numpy is there; it is not imported for this."""
    memmap: Any = getattr(sys.modules.get("numpy"), "memmap", None)
    if memmap is None:
        return
    if not _told_of_files:
        original = memmap.__new__

        @functools.wraps(original)
        def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(cls, *args, **kwargs)
            for told in _told_of_files:
                told()
            return made

        memmap.__new__ = staticmethod(new)
    _told_of_files[:] = [callback]


def _wrap(owner: type, name: str, before: Callable[..., None] | None) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args)
        try:
            return original(*args, **kwargs)
        finally:
            _tell()

    setattr(owner, name, wrapper)


def _tell() -> None:
    for callback in _told:
        callback()


def _open_early(loader: Any, spec: Any) -> None:
    """Load an extension module's library a moment before the import does, with its flags: creating the module runs the
    library's own code, and its place must be known by then. If it cannot be loaded, the import will say so.
    """
    import _ctypes

    with contextlib.suppress(OSError, TypeError, AttributeError):
        _ctypes.dlopen(spec.origin, sys.getdlopenflags())
        _tell()
