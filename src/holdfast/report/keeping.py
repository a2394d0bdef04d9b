"""Where reports lie that were given no other place: beside the records, private as those, the last fifty of them.

    $HOLDFAST_HOME/reports/7f3a.html

A file is written whole or not at all: a browser never finds half a page.

Runs in: wherever reports are made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from pathlib import Path

from holdfast.records import home
from holdfast.records.reader import Run

MOST_FILES = 50
_NAME = re.compile(r"[0-9a-zA-Z_-]{1,64}")


def default_path(run: Run) -> Path:
    """Where the page of a run goes. OSError where there is no such place."""
    runs = home.runs_directory()
    if runs is None:
        raise FileNotFoundError(errno.ENOENT, "No records are kept, so there is no place for reports beside them")
    name = run.id if _NAME.fullmatch(run.id) else "report"  # a record that was renamed is called by what it says
    return runs.parent / "reports" / f"{name}.html"


def save(text: str, path: Path) -> None:
    """Over what was there; into what is no file, as /dev/stdout. OSError where it cannot be written."""
    path = path.resolve()  # a link stays, and what it leads to is written
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    fd, temporary = tempfile.mkstemp(prefix=".", suffix=".html", dir=path.parent)
    try:
        with open(fd, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123 (a descriptor)
            file.write(text)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def save_beside_records(text: str, path: Path) -> None:
    """In the directory of reports, which is made, or closed to others, first; the oldest ones make room."""
    home.make_private(path.parent)
    save(text, path)
    for old in _oldest_first(path.parent)[:-MOST_FILES]:
        if old != path:
            with contextlib.suppress(OSError):
                old.unlink()


def _oldest_first(folder: Path) -> list[Path]:
    def age(path: Path) -> float:
        try:
            return path.lstat().st_mtime
        except OSError:  # removed in the meantime
            return 0.0

    return sorted((path for path in folder.glob("*.html") if _NAME.fullmatch(path.stem)), key=age)
