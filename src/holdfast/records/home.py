"""Where the records of runs lie, and that the place is private to the user.

    $HOLDFAST_HOME/runs, or the platform's state directory for holdfast (~/.local/state/holdfast/runs on Linux)
      20250131T120501.123Z-7f3a.jsonl      one run: the UTC time of its start, its id

The directory is 0700 and belongs to the user who runs. It is never reached through a symbolic link that somebody else
put there, and is itself never a link: what a worker wrote on stderr is in these files. Only what has the form of a
name above is ever read or removed.

Runs in: main process; wherever records are read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from platformdirs import user_state_path

from holdfast import options
from holdfast.errors import HoldfastWarning

_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z-(?P<id>[0-9a-f]{4,32})\.jsonl")
_has_warned = False


@dataclass(frozen=True, slots=True, order=True)
class RunFile:
    """A file in the directory of runs. They sort by the time their runs started."""

    name: str
    run_id: str
    path: Path


def runs_directory() -> Path | None:
    """Where the records lie, whether or not it is there yet. None: `HOLDFAST_HOME=/dev/null`, no records are kept.

    OSError where there is no such place.
    """
    wanted = options.home()
    if wanted == os.devnull:
        return None
    try:
        home = user_state_path("holdfast", appauthor=False) if wanted is None else Path(wanted).expanduser().absolute()
    except RuntimeError as error:  # HOLDFAST_HOME=~nobody/x, or a user without an entry and without HOME
        raise FileNotFoundError(errno.ENOENT, str(error)) from None
    if not home.is_absolute():  # an older platformdirs leaves the "~" as it is
        raise FileNotFoundError(errno.ENOENT, "There is no home directory", str(home))
    return home / "runs"


def make_private(runs: Path) -> None:
    """Make the directory of runs, or see that it is ours alone; OSError where it cannot be."""
    _make(runs.parent)
    for directory in (runs.parent, *runs.parent.parents):
        _refuse_link_of_another(directory)
    with contextlib.suppress(FileExistsError):
        runs.mkdir(mode=0o700)
    _check_ours(runs)


def run_files(runs: Path) -> list[RunFile]:
    """All records, newest first. OSError where the directory cannot be listed; none where there is no directory."""
    try:
        names = os.listdir(runs)  # noqa: PTH208  (only the names are wanted, and of thousands of files)
    except FileNotFoundError:
        return []
    found = ((name, run_id_of(name)) for name in names)
    return sorted((RunFile(name, run_id, runs / name) for name, run_id in found if run_id), reverse=True)


def run_id_of(name: str) -> str | None:
    """The id that a file's name has; None if it is not the name of a record."""
    match = _NAME.fullmatch(name)
    return match["id"] if match else None


def open_to_read(path: Path) -> int:
    """A descriptor of a regular file, never of what a link points to, and without waiting for anybody."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "This is not a regular file", str(path))
    return fd


def file_name(run_id: str, started: float) -> str:
    """What the record of a run is called."""
    when = datetime.fromtimestamp(started, UTC)
    return f"{when:%Y%m%dT%H%M%S}.{when.microsecond // 1000:03}Z-{run_id}.jsonl"


def warn_once(error: OSError) -> None:
    """Say that there is no record, or no more of it: once in a process, for the next loader has the same trouble."""
    global _has_warned  # noqa: PLW0603
    if _has_warned:
        return
    _has_warned = True
    warnings.warn(
        f"this run is not recorded, or not to its end, and goes on without: {error}\n"
        f"  try   set {options.HOME} to a directory of your own on a disk with room, "
        f"or {options.HOME}={os.devnull} to keep no records",
        HoldfastWarning,
        stacklevel=3,
    )


def _make(directory: Path) -> None:
    """With all that is missing above it, each private: `Path.mkdir(parents=True)` would make those as the umask is."""
    if not directory.is_dir():
        if directory.parent != directory:
            _make(directory.parent)
        with contextlib.suppress(FileExistsError):  # another rank was faster; or a file, and then the next step fails
            directory.mkdir(mode=0o700)


def _refuse_link_of_another(path: Path) -> None:
    """As the kernel does in /tmp: a link is followed if it is ours, or of the owner of the directory it lies in."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) and sys.platform != "win32":
        trusted = (os.geteuid(), path.parent.stat().st_uid)
        if status.st_uid not in trusted:
            raise PermissionError(errno.EPERM, "This is a symbolic link that another user made", str(path))


def _check_ours(runs: Path) -> None:
    """A directory and no link, of this user, and closed to others; it is closed now if it was not."""
    if not stat.S_ISDIR(runs.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "This is a link or a file, and not a directory", str(runs))
    if sys.platform == "win32":
        return  # the user's profile is private by its access list
    directory = os.open(runs, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "This directory belongs to another user", str(runs))
        if os.fstat(directory).st_mode & 0o777 != 0o700:
            os.fchmod(directory, 0o700)
        if os.fstat(directory).st_mode & 0o077:
            raise PermissionError(errno.EPERM, "Others can read this directory, and it cannot be closed", str(runs))
    finally:
        os.close(directory)
