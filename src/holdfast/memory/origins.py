"""Where the memory of this process comes from: what its allocators and Python say, then and now.

Cheap by default: how many objects Python has, and what C's malloc has given out, which takes some microseconds. With
`HOLDFAST_GROWTH=tracemalloc` the lines of Python that hold most, with `HOLDFAST_GROWTH=types` the types of which there
are more; both make every sample slower.

Standard library only. Runs in: worker process.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc
from collections import Counter

_MANY_OBJECTS = 100_000
_SHOWN = 3


class _MallInfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "top",
        )
    )


class Origins:
    """What there was when this was made, to be compared with later."""

    def __init__(self, how: str) -> None:
        """`how`: what `options.growth()` says."""
        self._how = how
        self._objects = sys.getallocatedblocks()
        self._malloc = _malloc_bytes()
        self._types = _types() if how == "types" else Counter[str]()
        if how == "tracemalloc":
            tracemalloc.start()
            self._traced = tracemalloc.take_snapshot()

    def largest_growth(self, grown_bytes: int) -> str:
        """What "the largest growth is in" goes on with."""
        if self._how == "tracemalloc":
            return self._lines()
        if self._how == "types":
            return self._more_types()
        objects, malloc = sys.getallocatedblocks() - self._objects, _malloc_bytes() - self._malloc
        if malloc >= grown_bytes // 2:
            return "memory that C code asked malloc for, such as arrays, tensors and images"
        if objects >= _MANY_OBJECTS:
            return f"Python objects, of which there are {objects} more"
        return "memory that was mapped: arrays and tensors of many megabytes, or Python objects"

    def _lines(self) -> str:
        changes = tracemalloc.take_snapshot().compare_to(self._traced, "lineno")
        found = [f"{stat.traceback} (+{stat.size_diff >> 20} MiB)" for stat in changes[:_SHOWN] if stat.size_diff > 0]
        return ", ".join(found) or "memory that Python does not know of"

    def _more_types(self) -> str:
        more = _types() - self._types
        found = [f"{name} (+{count})" for name, count in more.most_common(_SHOWN)]
        return ", ".join(found) or "memory that is in no object of Python's"


def _types() -> Counter[str]:
    return Counter(f"{type(obj).__module__}.{type(obj).__qualname__}" for obj in gc.get_objects())


def _malloc_bytes() -> int:
    """What glibc's malloc has given out; 0 where that cannot be asked."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return 0
    mallinfo2.restype = _MallInfo2
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)
