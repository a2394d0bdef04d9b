"""How far a scan is, on disk beside the file it is to write: so that it can be continued, also after `kill -9`.

JSON lines: the first says of what the scan is, each other what was found since the one before. A line is one write. A
last line that was torn is cut off; what it said is loaded again. One process at a time has the file: the lock is gone
with the process. When the scan is finished, the file is removed.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two scans apart there
    fcntl = None  # type: ignore[assignment]

from holdfast import HoldfastError
from holdfast.tasks.scan.findings import Findings

_OURS = {"holdfast": "scan", "version": 1}
_BEGINNING = b'{"holdfast":"scan"'
_EVERY_S = 1.0


class InUse(Exception):
    """Another process is scanning."""


class NotKept(HoldfastError):
    """There is no room on the disk, or it is gone."""


class OfAnother(Exception):
    """The file is of a scan of something else. The text says what differs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is scanned: only a scan of the very same can be continued."""

    target: str
    length: int | None
    sample: int | None = None
    seed: int | None = None
    workers: int | None = None
    """Of an iterable dataset: each has a part of it."""


class ProgressFile:
    """Of one scan, open to be written. `findings` are those of the scan that is continued, if there is one."""

    def __init__(self, path: Path, subject: Subject, *, again: bool) -> None:
        """InUse, OfAnother, or OSError where it cannot be written."""
        self.path = path
        self.findings = Findings(subject.length)
        self._written_at_s = 0.0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _lock(self._fd)
            lines = _whole_lines(self._fd)
            if again or not lines:
                os.ftruncate(self._fd, 0)
                self._append({**_OURS, **asdict(subject)})
            else:
                self._take_up(lines, asdict(subject))
        except BaseException:
            os.close(self._fd)
            raise

    def _take_up(self, lines: list[dict[str, Any]], subject: dict[str, Any]) -> None:
        header, *rest = lines
        if header.get("version") != _OURS["version"]:
            raise OfAnother("it was written by another version of holdfast")
        differs = [f"{name} {header.get(name)}" for name in subject if header.get(name) != subject[name]]
        if differs:
            raise OfAnother(f"it is of a scan with {', '.join(differs)}")
        for line in rest:
            self.findings.hear(line)

    def keep(self) -> None:
        """Write down what is new, if the last time is a moment ago."""
        if time.monotonic() - self._written_at_s >= _EVERY_S:
            self.write()

    def write(self) -> None:
        """Write down what is new."""
        news = self.findings.tell_news()
        if news is not None:
            self._append(news)
            self.findings.forget_news()
        self._written_at_s = time.monotonic()

    def remove(self) -> None:
        """The scan is finished."""
        self.path.unlink(missing_ok=True)

    def _append(self, line: dict[str, Any]) -> None:
        """Whole, or not at all."""
        data, size = json.dumps(line, separators=(",", ":")).encode() + b"\n", os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise NotKept(f"{self.path} cannot be written: {error}. What was scanned before that is kept.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            with contextlib.suppress(NotKept):  # it was said
                self.write()
        finally:
            os.close(self._fd)


def _lock(fd: int) -> None:
    if fcntl is None:
        return
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process alone: workers do not inherit it
    except OSError:
        raise InUse from None


def _whole_lines(fd: int) -> list[dict[str, Any]]:
    """All lines, once a torn last one is cut off. Of a file that is not ours nothing is cut off."""
    data = b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
    if not data[: len(_BEGINNING)].startswith(_BEGINNING[: len(data)]):
        raise OfAnother("it is not a file of holdfast scan")
    whole = data.rfind(b"\n") + 1
    os.ftruncate(fd, whole)
    try:
        return [json.loads(line) for line in data[:whole].splitlines()]
    except ValueError:
        raise OfAnother("it is damaged") from None
