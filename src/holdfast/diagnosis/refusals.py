"""Why the kernel refused a new process, or a descriptor that it needs: which limit was reached, as measured.

Asked when the limit has just been hit, so nothing is opened to count descriptors (`descriptors.py`). Never raises.
Standard library only. Runs in: main | supervisor process.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.cgroup_files import ROOT, directories_of
from holdfast.diagnosis import descriptors

if sys.platform == "linux":
    import resource

NUMBERS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What fork, pipe, socketpair and their like say where there is no room for one more."""


def reached(number: int, root: Path = ROOT) -> tuple[str, ...]:
    """The limits that are reached now, each in a line; none where that cannot be told. `root` is for recorded trees."""
    if number == errno.EMFILE:
        held = descriptors.held()
        # Some may have been closed on the way here.
        return (f"open descriptors of the process just after: {held}",) if held else ()
    if number != errno.EAGAIN or sys.platform != "linux":
        return ()
    return (*_of_the_user(root), *_of_cgroups(root))


def _of_the_user(root: Path) -> Iterator[str]:
    """RLIMIT_NPROC, which does not bind root."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most == resource.RLIM_INFINITY or os.geteuid() == 0:
        return
    count = sum(_threads(entry, os.getuid()) for entry in _entries(root / "proc") if entry.name.isdigit())
    if count >= most:
        yield f"processes and threads of user {os.getuid()}: {count}, and RLIMIT_NPROC (ulimit -u) is {most}"


def _threads(process: Path, uid: int) -> int:
    """How many the process has, if it is this user's."""
    try:
        lines = (process / "status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if line.startswith(("Uid:", "Threads:")))
        return int(fields["Threads"]) if int(fields["Uid"].split()[0]) == uid else 0
    except (OSError, ValueError, KeyError):
        return 0


def _of_cgroups(root: Path) -> Iterator[str]:
    """pids.max of the cgroup of this process, and of those above it."""
    for found in directories_of("self", "pids", root):
        for directory in (found.path, *found.path.parents):
            try:
                most, count = (int((directory / name).read_text()) for name in ("pids.max", "pids.current"))
            except (OSError, ValueError):  # no such limit ("max"), or above all cgroups
                continue
            if count >= most:
                yield f"processes and threads in the cgroup {directory}: {count}, and its pids.max is {most}"


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []
