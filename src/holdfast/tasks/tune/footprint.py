"""How much memory a sample takes, and what the process that loads it has. Never raises, whatever a sample is.

The kernel keeps the peak of a process and forgets it on request; where there is no /proc nothing is known.

Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_DEEPEST = 8
_MOST_ITEMS = 1000
_LINES = re.compile(rb"^(VmHWM|VmRSS|RssAnon|VmData):\s+(\d+)", re.MULTILINE)
_FORGET_PEAK = b"5"  # see proc_pid_clear_refs(5)


def nbytes_of(thing: Any, depth: int = 0) -> int:
    """About how much memory a sample takes: of arrays what they hold, of a long list what its first items say."""
    try:
        own = getattr(thing, "nbytes", None)
        if isinstance(own, int):
            return own
        if isinstance(thing, str | bytes | bytearray):
            return len(thing)
        if hasattr(thing, "getbands"):  # an image of Pillow
            width, height = thing.size
            return int(width * height * len(thing.getbands()))
        parts = None if depth == _DEEPEST else _parts(thing)
        if parts is None:
            return sys.getsizeof(thing, 0)
        seen = [nbytes_of(part, depth + 1) for part in itertools.islice(parts, _MOST_ITEMS)]
        length = len(thing) if hasattr(thing, "__len__") else len(seen)
        return sum(seen) * max(1, length) // max(1, len(seen))
    except Exception:  # an object of the user's may do anything when asked
        return 0


def _parts(thing: Any) -> Iterator[Any] | None:
    if isinstance(thing, Mapping):
        return iter(thing.values())
    if isinstance(thing, list | tuple | set | frozenset):
        return iter(thing)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return (getattr(thing, each.name) for each in dataclasses.fields(thing))
    return None


class Reading(NamedTuple):
    """Private memory of this process: now, at its peak since that was forgotten, and what a limit counts."""

    now_bytes: int
    peak_bytes: int
    data_bytes: int


def read() -> Reading | None:
    try:
        fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = {name: int(kilobytes) * 1024 for name, kilobytes in _LINES.findall(os.read(fd, 8192))}
        finally:
            os.close(fd)
        anonymous = found[b"RssAnon"]
        # what was shared at the peak is not told: as much as now, then
        peak = max(anonymous, found[b"VmHWM"] - (found[b"VmRSS"] - anonymous))
        return Reading(anonymous, peak, found[b"VmData"])
    except (OSError, KeyError):
        return None


def forget_peak() -> None:
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, _FORGET_PEAK)
        finally:
            os.close(fd)
