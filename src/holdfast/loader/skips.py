"""The samples that were passed over: what the user reads of them, and the file that remembers them between runs.

The file is JSON lines: a first line that says what it is and of how many samples, then one line per bad sample. It only
ever grows, each line by one write, so that several ranks can share a file. A line that was torn, by a machine that went
down, stays and is passed over; after a torn first line, and where two ranks began the file at once, that line comes
again.

    {"holdfast":"skipped samples","version":1,"dataset_length":64}
    {"index":17,"reason":"ValueError: bad header","run":"9f2c51d07be4.1"}
    {"withdrawn":"9f2c51d07be4.1"}

`run` identifies one loader in one process. Lines of a run that was withdrawn do not count, wherever they stand: it
met so many bad samples that the storage may be to blame. Lines without a run, of version 0.1.0, count.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import numbers
import operator
import os
import stat
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KIND = "skipped samples"
_VERSION = 1
_OURS = f'{{"holdfast":"{_KIND}"'.encode()  # how the file begins
_LONGEST_HEADER = 4096
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class SkippedSample:
    """A sample that was not delivered. `replaced_by` is the index delivered in its place, or None."""

    index: Any
    reason: str
    replaced_by: Any = None
    epoch: int = 0
    batch: int = 0


class KnownBad:
    """Indices that are not to be tried again. An index that cannot be hashed is never known."""

    def __init__(self) -> None:
        self._reasons: dict[Hashable, str] = {}
        self._epochs: dict[Hashable, int] = {}  # in which each was found; those of the file are not in here

    def __len__(self) -> int:
        return len(self._reasons)

    def __contains__(self, index: object) -> bool:
        try:
            return number_or_itself(index) in self._reasons
        except TypeError:
            return False

    def reason(self, index: Any) -> str:
        return self._reasons[number_or_itself(index)]

    def was_known_before(self, index: Any, epoch: int) -> bool:
        """Whether a known index is one of the file, or was found in an earlier epoch."""
        return self._epochs.get(number_or_itself(index), -1) < epoch

    def add(self, index: Any, reason: str, epoch: int | None = None) -> bool:
        """Note an index; False if it was known, or cannot be noted. `epoch`: where it was found; None: in the file."""
        key = number_or_itself(index)
        try:
            is_new = key not in self._reasons
            self._reasons.setdefault(key, reason)
        except TypeError:
            return False
        if is_new and epoch is not None:
            self._epochs[key] = epoch
        return is_new

    def forget_found(self) -> None:
        """Keep only what the file said."""
        for key in self._epochs:
            del self._reasons[key]
        self._epochs.clear()


class SkippedFile:
    """One file of bad samples, for a dataset of a certain length (None: it has none)."""

    def __init__(self, path: str | os.PathLike[str], dataset_length: int | None) -> None:
        self.path = Path(path)
        self._length = dataset_length
        self._run = ""  # its id, once it has written a line
        self._run_pid = 0

    def __str__(self) -> str:
        return f"skipped_file={str(self.path)!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self._length)  # a copy is another run

    def read(self) -> dict[Any, str]:
        """Index to reason; nothing if there is no file yet. Refuses one of another dataset, or not of ours."""
        if (kind := special_kind(self.path)) is not None:
            raise ValueError(
                f"{self} is {kind}, not a file that can be read and appended to. "
                f"Name a regular file, or one that does not exist yet"
            )
        try:
            # If it has become a FIFO since then, opening it must not wait for a writer.
            fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            return {}
        with os.fdopen(fd, "rb") as file:
            first, *rest = _from_header_on(file.read())
        if not _is_torn_header(first):
            self._check(first)
        return entries_in(rest[:-1])  # what has no end of line was not written whole

    def append(self, index: Any, reason: str) -> None:
        """Add a line, whole or not at all. An index that JSON cannot say is left out: it could not be read back."""
        index = number_or_itself(index)
        if not isinstance(index, numbers.Integral | str | tuple) or isinstance(index, bool):
            return
        try:
            plain = _plain(index)
        except TypeError:
            return
        if self._run_pid != os.getpid():  # also after a fork: the lines of one process are not another's to withdraw
            self._run, self._run_pid = _new_run(), os.getpid()
        self._write(_line({"index": plain, "reason": reason[:_LONGEST_REASON], "run": self._run}))

    def withdraw(self) -> None:
        """Append a line that withdraws those appended so far. Later ones belong to another run."""
        if self._run_pid == os.getpid():
            self._run_pid = 0
            self._write(_line({"withdrawn": self._run}))

    def _write(self, line: bytes) -> None:
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(fd, self._before(fd) + line)
        finally:
            os.close(fd)

    def _before(self, fd: int) -> bytes:
        """What must come before the next line: the end of one that was torn, the first line if there is none."""
        size = os.fstat(fd).st_size
        is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        before = b"\n" if is_torn else b""
        if _is_torn_header(_from_header_on(os.pread(fd, _LONGEST_HEADER, 0))[0]):
            before += _line({"holdfast": _KIND, "version": _VERSION, "dataset_length": self._length})
        return before

    def _check(self, line: bytes) -> None:
        header = _parse(line)
        if header.get("holdfast") != _KIND:
            raise self._not_ours()
        if header.get("version") != _VERSION:
            raise ValueError(f"{self} is of version {header.get('version')}, this is {_VERSION}")
        if header.get("dataset_length") != self._length:
            raise ValueError(
                f"{self} is of a dataset of {header.get('dataset_length')} samples, but this "
                f"one has {self._length}: its indices mean other samples. Name another file, or delete this one"
            )

    def _not_ours(self) -> ValueError:
        return ValueError(
            f"{self} is not a file of skipped samples of holdfast. Name another file; nothing was written to it"
        )


def number_or_itself(index: Any) -> Any:
    """A tensor that is one whole number, as some samplers give, is that number: it would equal no other tensor."""
    if type(index) is int or getattr(index, "ndim", None) != 0:
        return index
    try:
        return operator.index(index)
    except TypeError:
        return index


def _parse(line: bytes) -> dict[str, Any]:
    """A line, or nothing where it was torn or is not ours."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _from_header_on(data: bytes) -> list[bytes]:
    """The lines, without torn ones before the first whole one. At least one, though it may be torn or empty."""
    lines = data.split(b"\n")
    while len(lines) > 1 and _is_torn_header(lines[0]):
        del lines[0]
    return lines


def _is_torn_header(line: bytes) -> bool:
    return _OURS.startswith(line[: len(_OURS)]) and not _parse(line)


def entries_in(lines: Iterable[bytes]) -> dict[Any, str]:
    """Index to reason, of all lines but the first: those that are whole, and of no run that was withdrawn."""
    parsed = [_parse(line) for line in lines]
    withdrawn = {str(entry["withdrawn"]) for entry in parsed if "withdrawn" in entry}
    found: dict[Any, str] = {}
    for entry in parsed:
        if "index" in entry and str(entry.get("run", "")) not in withdrawn:
            with contextlib.suppress(TypeError):
                found[_plain(entry["index"])] = str(entry.get("reason", ""))
    return found


def special_kind(path: str | os.PathLike[str]) -> str | None:
    """What a path is if it exists and is no regular file: opening or reading it may block for ever.

    The null device counts as a file: it is empty, and takes what is written.
    """
    try:
        found = Path(path).stat()
    except OSError:
        return None  # opening it will say what is wrong
    if stat.S_ISREG(found.st_mode) or Path(path).resolve() == Path(os.devnull):
        return None
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a directory", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(found.st_mode), "a device")


_processes: dict[int, str] = {}  # by pid: that of the parent is not ours
_numbers = itertools.count(1)


def _new_run() -> str:
    if os.getpid() not in _processes:
        _processes[os.getpid()] = os.urandom(6).hex()
    return f"{_processes[os.getpid()]}.{next(_numbers)}"


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _plain(index: Any) -> Any:
    """An index as JSON can say it: numpy's numbers are numbers, and JSON has lists where Python has tuples."""
    if isinstance(index, tuple | list):
        return tuple(map(_plain, index))
    if index is None or isinstance(index, str | float | bool):
        return index
    if isinstance(index, numbers.Integral):
        return int(index)
    raise TypeError(index)
