"""Where the kernel keeps the limits of a process: the directory of its cgroup, of one controller, version 1 or 2.

Standard library only. Runs in: main | supervisor process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class CgroupDirectory(NamedTuple):
    """Of the version that counts first where both are there: a controller belongs to one of them only."""

    path: Path
    version: int


def directories_of(pid: int | str, controller: str, root: Path = ROOT) -> Iterator[CgroupDirectory]:
    """Where the controller ("memory", "cpu") may have its files for a process; none where that cannot be told.

    `root` is for recorded trees.
    """
    proc = root / "proc" / str(pid)
    try:
        paths = dict(_controllers((proc / "cgroup").read_text()))
        mounts = _mounts((proc / "mountinfo").read_text())
    except (OSError, ValueError):  # gone, or not as we know it
        return
    for name, version in ((controller, 1), ("", 2)):
        if name in paths and name in mounts:
            mount_root, mount_point = mounts[name]
            below = paths[name].removeprefix(mount_root.rstrip("/")).lstrip("/")
            yield CgroupDirectory(root / mount_point.lstrip("/") / below, version)


def _controllers(text: str) -> list[tuple[str, str]]:
    """(controller, path) of each line of /proc/PID/cgroup; the controller of version 2 is ""."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.extend((controller, path) for controller in controllers.split(","))
    return found


def _mounts(text: str) -> dict[str, tuple[str, str]]:
    """Of /proc/PID/mountinfo, by controller: which part of the hierarchy is mounted, and where."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, mount_root, mount_point, *_ = before.split()
        if kind == "cgroup2":
            found.setdefault("", (mount_root, mount_point))
        elif kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, (mount_root, mount_point))
    return found
