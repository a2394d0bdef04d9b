"""What a process has mapped where: the libraries that an address is looked up in, and the page it is handed over on.

A dead process has no /proc/PID/maps any more, so it is read beforehand: by the worker, whenever it has loaded a library
(`loads.py`), onto a page that its parent reads after the death. A forked worker that loaded nothing has written
nothing: its libraries lie where its parent's do, and the parent reads its own.

Kept are, the most telling first and bounded in number:
    code                          of files, and without a file what a compiler made at run time
    [stack], [heap]
    shared mappings of files      memory in /dev/shm, memfds, data files: where a SIGBUS comes from
    guard pages                   below the stacks of threads: a worker may run on one, if its parent forked in a thread

Our own segments are left out: they come and go without a look, and where one was the user may have mapped a file since.

Runs in: worker process (write), main | supervisor process (read).
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from holdfast.diagnosis.evidence import Mapping

MOST_MAPPINGS = 2000
_PERMISSIONS, _OFFSET, _PATH = 1, 2, 5  # fields of a line; the path is the last, and may have spaces
_GUARD = "---p"
_OWN_MEMORY = ("[stack]", "[heap]")
_IN_MEMORY = ("/dev/shm/", "/memfd:")
_OURS = ("/dev/shm/holdfast-", "/memfd:holdfast ")


def of_self() -> tuple[Mapping, ...]:
    """This process's own; empty where there is no /proc."""
    return parse(text_of_self())


def text_of_self() -> str:
    try:
        return Path("/proc/self/maps").read_text(errors="surrogateescape")
    except OSError:
        return ""


def parse(text: str) -> tuple[Mapping, ...]:
    """The mappings that matter here, of the text of a /proc/PID/maps. What does not look like one is left out."""
    return tuple(filter(None, map(_mapping, lines_that_matter(text))))


def lines_that_matter(text: str) -> list[str]:
    """As they stand in the text, the most telling first."""
    ranked: tuple[list[str], ...] = ([], [], [], [])
    for line in text.split("\n"):
        rank = _rank(line)
        if rank is not None:
            ranked[rank].append(line)
    return list(itertools.chain(*ranked))[:MOST_MAPPINGS]


def mapping_at(mappings: Iterable[Mapping], address: int) -> Mapping | None:
    return next((mapping for mapping in mappings if mapping.start <= address < mapping.end), None)


def _rank(line: str) -> int | None:
    """0 for code, 1 for stack and heap, 2 for shared memory, 3 for guard pages, None for what is of no use.

    Runs at each load.
    """
    fields = line.split(None, 5)
    if len(fields) < 5 or len(fields[_PERMISSIONS]) != 4:
        return None
    if fields[_PERMISSIONS][2] == "x":
        return 0
    if len(fields) == 5:
        return 3 if fields[_PERMISSIONS] == _GUARD else None
    if fields[_PATH] in _OWN_MEMORY:
        return 1
    if fields[_PATH].startswith(_OURS):
        return None
    return 2 if fields[_PERMISSIONS][3] == "s" or fields[_PATH].startswith(_IN_MEMORY) else None


def _mapping(line: str) -> Mapping | None:
    fields = line.split(None, 5)
    start, _, end = fields[0].partition("-")
    path = fields[_PATH] if len(fields) > _PATH else ""
    try:
        return Mapping(int(start, 16), int(end, 16), fields[_PERMISSIONS], int(fields[_OFFSET], 16), path)
    except ValueError:
        return None


_HEADER = struct.Struct("<QQ")  # where the text begins, and its length; all zero: nothing written
_TEXT_BYTES = 256 * 1024
_TEXTS_AT = (4096, 4096 + _TEXT_BYTES)


class LibraryPage:
    """One worker's mappings, on a memfd. Whatever the worker dies of, the last whole text is there.

    Two texts take turns, and the header that names the valid one is written last, in one piece.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> LibraryPage:
        if not hasattr(os, "memfd_create"):
            return cls(-1)
        page = cls(os.memfd_create("holdfast-libraries", os.MFD_CLOEXEC))
        os.ftruncate(page.fd, _TEXTS_AT[1] + _TEXT_BYTES)
        return page

    def write(self, text: str) -> None:
        """In the worker: keep what matters of the text of its /proc/self/maps, as far as there is room."""
        if self.fd < 0:
            return
        body = "\n".join(lines_that_matter(text)).encode(errors="surrogateescape")
        if len(body) > _TEXT_BYTES:
            body = body[: body.rfind(b"\n", 0, _TEXT_BYTES)]
        valid = _HEADER.unpack(os.pread(self.fd, _HEADER.size, 0))[0]
        other = _TEXTS_AT[1] if valid == _TEXTS_AT[0] else _TEXTS_AT[0]
        os.pwrite(self.fd, body, other)
        os.pwrite(self.fd, _HEADER.pack(other, len(body)), 0)

    def read(self) -> tuple[Mapping, ...] | None:
        """After the worker's death; None where it wrote nothing: then a forked worker's are those of its parent."""
        if self.fd < 0:
            return None
        header = os.pread(self.fd, _HEADER.size, 0)
        start, length = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0)
        if start not in _TEXTS_AT:
            return None
        return parse(os.pread(self.fd, min(length, _TEXT_BYTES), start).decode(errors="surrogateescape"))

    def read_or_own(self, forked: bool) -> tuple[Mapping, ...]:
        """After the death of a worker, called in the process that forked it, or in one that has not loaded less."""
        return self.read() or (of_self() if forked else ())

    def clear(self) -> None:
        """For a page that the next worker uses again."""
        if self.fd >= 0:
            os.pwrite(self.fd, bytes(_HEADER.size), 0)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
