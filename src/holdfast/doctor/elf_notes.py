"""The level of x86-64 that a library says it needs: the note that `-Wl,-z,x86-64-v3` leaves in it.

glibc reads it as well, from 2.33 on, and refuses to load what needs more than the CPU has. Read by hand, from the
program headers: a few reads of a file. Runs in: main process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_X86_64 = 62
_PT_NOTE = 4
_NT_GNU_PROPERTY_TYPE_0 = 5
_X86_ISA_1_NEEDED = 0xC0008002
_MOST_BYTES = 1 << 16  # of notes; a library has a few hundred
_LEVELS = ((8, "x86-64-v4"), (4, "x86-64-v3"), (2, "x86-64-v2"), (1, "x86-64-v1"))


def level_needed(path: str) -> str | None:
    """ "x86-64-v3"; None where it says nothing, is for another machine, or is no whole ELF file."""
    try:
        with Path(path).open("rb") as file:
            header = file.read(64)
            if not header.startswith(_ELF64_LITTLE) or struct.unpack_from("<H", header, 18)[0] != _X86_64:
                return None
            table_at, entry_bytes, count = _program_headers(header)
            file.seek(table_at)
            table = file.read(entry_bytes * count)
            for offset, size in _notes(table, entry_bytes):
                file.seek(offset)
                needed = _needed(file.read(min(size, _MOST_BYTES)))
                if needed:
                    return next(level for bit, level in _LEVELS if needed & bit)
    except (OSError, ValueError, struct.error):
        return None
    return None


def _program_headers(header: bytes) -> tuple[int, int, int]:
    entry_bytes, count = struct.unpack_from("<HH", header, 54)
    return struct.unpack_from("<Q", header, 32)[0], entry_bytes, count


def _notes(table: bytes, entry_bytes: int) -> Iterator[tuple[int, int]]:
    """Offset and size of each segment of notes."""
    for at in range(0, len(table) - 55, max(entry_bytes, 56)):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", table, at)
        if kind == _PT_NOTE:
            yield offset, size


def _needed(notes: bytes) -> int:
    """The bits of the property that says which levels are needed; 0 where there is none that we know."""
    at = 0
    while at + 12 <= len(notes):
        name_bytes, text_bytes, kind = struct.unpack_from("<III", notes, at)
        text_at = at + 12 + _aligned(name_bytes, 4)
        if kind == _NT_GNU_PROPERTY_TYPE_0 and notes[at + 12 : at + 16] == b"GNU\0":
            found = _property(notes[text_at : text_at + text_bytes], _X86_ISA_1_NEEDED)
            if found:
                return found & 0xF
        at = text_at + _aligned(text_bytes, 4)
    return 0


def _property(text: bytes, wanted: int) -> int:
    at = 0
    while at + 12 <= len(text):
        kind, size, value = struct.unpack_from("<III", text, at)
        if kind == wanted:
            return int(value)
        at += 8 + _aligned(size, 8)
    return 0


def _aligned(number: int, to: int) -> int:
    return (number + to - 1) // to * to
