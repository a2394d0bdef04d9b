"""Facts that are read where the judging is done, and added to the evidence. Only this looks at the machine.

    Evidence ──► gather ──► Evidence with the CPU's name, sizes of files, the machine of a library, source lines

A fact that cannot be read is left as it was: nothing here raises. Standard library only. Runs in: main process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import linecache
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Ending, Evidence, RaisedException
from holdfast.diagnosis.native import elf
from holdfast.diagnosis.native.cpu import cpu_name
from holdfast.diagnosis.python_frames import FRAME

_LIBRARY = re.compile(r"[^\s:'\"<>]*\.so(?:\.\d+)*\b")
_MOST_SOURCE_LINES = 200


def gather(evidence: Evidence) -> Evidence:
    """The evidence, with what can be read here and now and would help to judge it."""
    added: dict[str, object] = {}
    with contextlib.suppress(Exception):  # whatever is wrong with a path: the evidence is worth more than this fact
        number = signs.signal_of(evidence)
        if number == wording.SIGILL:
            added["cpu"] = evidence.cpu or cpu_name()
        if number == wording.SIGBUS:
            added |= _of_bus_error(evidence)
        if evidence.raised is not None and evidence.raised.errno == errno.ENOSPC:
            added |= _room("/dev/shm")
        if evidence.raised is not None:
            added["wrong_machine"] = evidence.wrong_machine or wrong_machine_library(evidence.raised)
        if evidence.ending is Ending.HUNG:
            added["python_stack"] = with_source(evidence.python_stack)
    return dataclasses.replace(evidence, **added)  # type: ignore[arg-type]


def describe(error: BaseException, traceback: str) -> RaisedException:
    """An exception as evidence. `traceback` is the worker's: the object itself has lost it on its way."""
    kind, number, filename = type(error), _attribute(error, "errno"), _attribute(error, "filename")
    try:
        text = str(error)
    except Exception:  # an exception of the user's, with a __str__ of its own
        text = ""
    return RaisedException(
        type=f"{kind.__module__}.{kind.__qualname__}",
        message=text,
        traceback=traceback,
        errno=number if isinstance(number, int) else None,
        bases=tuple(base.__name__ for base in kind.__mro__[1:-1]),
        filename=os.fsdecode(filename) if isinstance(filename, str | bytes) else "",
    )


def _attribute(error: BaseException, name: str) -> object:
    """None where a property of the user's, of that name, raises."""
    try:
        return getattr(error, name, None)
    except Exception:
        return None


def wrong_machine_library(raised: RaisedException, path_of_library: str = "") -> str:
    """ "libfast.so is built for aarch64, and this Python for x86_64"; "" where it is about no such library."""
    here = elf.machine_of(sys.executable) if signs.is_of(raised, "OSError", "ImportError") else None
    if not here:
        return ""
    for path in _candidates(raised, path_of_library):
        machine = elf.machine_of(str(path))
        if machine and machine != here:
            return f"{path.name} is built for {machine}, and this Python for {here} ({path})"
    return ""


def _candidates(raised: RaisedException, path_of_library: str) -> Iterator[Path]:
    """Files that the exception may be about. A bare name is looked for where the loader would."""
    folders = [Path(), *(Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder)]
    prefix = raised.message.split(": ")[0]
    names = [path_of_library, raised.filename, prefix if ".so" in prefix else "", *_LIBRARY.findall(raised.message)]
    for name in names:
        if name:
            yield from [Path(name)] if "/" in name else [folder / name for folder in folders]


def with_source(stack: str) -> str:
    """A stack of faulthandler, with the source line under each frame where the file can be read."""
    lines = []
    for line in stack.splitlines():
        lines.append(line)
        match = FRAME.match(line) if len(lines) < _MOST_SOURCE_LINES else None
        source = linecache.getline(match["file"], int(match["line"])).strip() if match else ""
        lines += [f"    {source}"] if source else []
    return "\n".join(lines)


def _of_bus_error(evidence: Evidence) -> dict[str, object]:
    """The size of the file that was hit, where it still has a name, and the room on its tmpfs, if it is on one."""
    hit = signs.bus_error_in(evidence)
    if signs.is_bus_error_nowhere(evidence):
        return _room("/dev/shm")
    if hit is None or hit[0].path.startswith("/memfd:"):
        return {}
    path = hit[0].path
    with contextlib.suppress(OSError):
        return {"mapped_file_bytes": Path(path).stat().st_size} | _room(tmpfs_of(path))
    return _room(tmpfs_of(path))


def _room(mount: str) -> dict[str, object]:
    if not mount:
        return {}
    with contextlib.suppress(OSError, AttributeError):  # Windows has no statvfs
        room = os.statvfs(mount)
        return {
            "shared_memory_mount": mount,
            "shared_memory_bytes": room.f_blocks * room.f_frsize,
            "shared_memory_free_bytes": room.f_bavail * room.f_frsize,
        }
    return {}


def tmpfs_of(path: str) -> str:
    """Where the tmpfs is mounted that a file is on; "" for one that is on a disk."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    mounts = [(fields[1], fields[2]) for fields in map(str.split, lines) if len(fields) > 2]
    over = [mount for mount in mounts if path.startswith(f"{mount[0].rstrip('/')}/")]
    nearest = max(over, key=lambda mount: len(mount[0]), default=("", ""))
    latest = [kind for where, kind in over if where == nearest[0]][-1:]  # what is mounted later hides the earlier
    return nearest[0] if latest == ["tmpfs"] else ""
