"""The samples that were passed over: what the user reads of them, and the file that remembers them between runs.

The file is JSON lines: a first line that says what it is and of how many samples, then one line per bad sample. It only
ever grows, each line by one write, so that several ranks can share a file. A line that was torn, by a machine that went
down, stays and is passed over; after a torn first line, and where two ranks began the file at once, that line comes
again.

    {"holdfast":"skipped samples","version":1,"dataset_length":64}
    {"index":17,"reason":"ValueError: bad header"}

Runs in: main process.
"""

from __future__ import annotations

import json
import numbers
import operator
import os
from collections.abc import Hashable
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

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def __contains__(self, index: object) -> bool:
        try:
            return number_or_itself(index) in self._reasons
        except TypeError:
            return False

    def reason(self, index: Any) -> str:
        return self._reasons[number_or_itself(index)]

    def add(self, index: Any, reason: str) -> bool:
        """Note an index; False if it was known, or cannot be noted."""
        key = number_or_itself(index)
        try:
            is_new = key not in self._reasons
            self._reasons.setdefault(key, reason)
        except TypeError:
            return False
        return is_new


class SkippedFile:
    """One file of bad samples, for a dataset of a certain length (None: it has none)."""

    def __init__(self, path: str | os.PathLike[str], dataset_length: int | None) -> None:
        self.path = Path(path)
        self._length = dataset_length

    def read(self) -> dict[Any, str]:
        """Index to reason; nothing if there is no file yet. Refuses one of another dataset, or not of ours."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        first, *rest = _from_header_on(data)
        if not _is_torn_header(first):
            self._check(first)
        entries = map(_entry, rest[:-1])  # what has no end of line was not written whole
        return {entry[0]: entry[1] for entry in entries if entry is not None}

    def append(self, index: Any, reason: str) -> None:
        """Add a line, whole or not at all. An index that JSON cannot say is left out: it could not be read back."""
        index = number_or_itself(index)
        if not isinstance(index, numbers.Integral | str | tuple) or isinstance(index, bool):
            return
        try:
            line = _line({"index": _plain(index), "reason": reason[:_LONGEST_REASON]})
        except TypeError:
            return
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
            raise ValueError(
                f"skipped_file={str(self.path)!r} is of version {header.get('version')}, this is {_VERSION}"
            )
        if header.get("dataset_length") != self._length:
            raise ValueError(
                f"skipped_file={str(self.path)!r} is of a dataset of {header.get('dataset_length')} samples, but this "
                f"one has {self._length}: its indices mean other samples. Name another file, or delete this one"
            )

    def _not_ours(self) -> ValueError:
        return ValueError(
            f"skipped_file={str(self.path)!r} is not a file of skipped samples of holdfast. "
            f"Name another file; nothing was written to it"
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


def _entry(line: bytes) -> tuple[Any, str] | None:
    entry = _parse(line)
    try:
        return _plain(entry["index"]), str(entry.get("reason", ""))
    except (KeyError, TypeError):
        return None


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
