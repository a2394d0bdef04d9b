"""Which records are kept: a new one gets a short id of its own, and old ones make room.

A record is never removed while its writer may be alive. On this machine the lock says that. Of a file that another
machine wrote, or where there are no locks, it is not sure: such a file goes only when nobody has touched it for a day.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from pathlib import Path

from holdfast.records import home, liveness
from holdfast.records.limits import Limits
from holdfast.records.line_file import LineFile
from holdfast.records.lines import MAX_LINE_BYTES, decode

_DIGITS = (4, 6, 8, 16, 32)
_UNTOUCHED_S = 24 * 3600.0


def create(runs: Path, started: float) -> tuple[str, LineFile]:
    """A new file with an id that no other has. Four digits, or more where those are taken."""
    taken = {file.run_id for file in home.run_files(runs)}
    for digits in _DIGITS:
        run_id = secrets.token_hex(_DIGITS[-1] // 2)[:digits]  # not `random`, which is the user's to seed
        if run_id not in taken:
            with contextlib.suppress(FileExistsError):  # another process was faster
                return run_id, LineFile.create(runs / home.file_name(run_id, started))
    raise FileExistsError(f"no id is free in {runs}")


def make_room(runs: Path, limits: Limits) -> None:
    """Remove the oldest records until the next one fits in, in number and in bytes. What resists is left."""
    kept, kept_bytes = 1, limits.max_file_bytes  # the next one
    for file in home.run_files(runs):
        with contextlib.suppress(OSError):
            nbytes = _size(file.path)
            fits = kept + 1 <= limits.max_runs and kept_bytes + nbytes <= limits.max_total_bytes
            if not fits and _is_over(file.path):
                file.path.unlink()
                continue
            kept, kept_bytes = kept + 1, kept_bytes + nbytes


def _size(path: Path) -> int:
    status = path.lstat()
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _is_over(path: Path) -> bool:
    fd = home.open_to_read(path)
    try:
        held = liveness.is_held(fd)
        start = decode(os.read(fd, MAX_LINE_BYTES).partition(b"\n")[0])
        if held is False and start is not None and liveness.is_of_this_host(start):
            return True
        return not held and time.time() - os.fstat(fd).st_mtime > _UNTOUCHED_S
    finally:
        os.close(fd)
