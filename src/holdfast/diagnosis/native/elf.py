"""What an ELF file says: its machine, where its parts are loaded to, and the function at an address.

Headers are read by hand, so they are known wherever there is a file; symbols by pyelftools.
Files are read in the main process after a crash: nothing of a library is run or loaded.

Runs in: main process.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

_MAGIC = b"\x7fELF"
_LOAD = 1  # PT_LOAD
_FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_DEMANGLE_LIMIT_S = 1.0

_MACHINES = {
    3: "i386",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}


def machine_of(path: str) -> str | None:
    """The machine a library is made for: "x86_64", "aarch64"; None where the file is no ELF file or cannot be read."""
    try:
        if not Path(path).is_file():  # reading a device may have effects
            return None
        with Path(path).open("rb") as file:
            header = file.read(20)
    except (OSError, ValueError):
        return None
    if len(header) < 20 or not header.startswith(_MAGIC):
        return None
    number = int.from_bytes(header[18:20], "big" if header[5] == 2 else "little")
    name = _MACHINES.get(number, f"machine {number}")
    return f"{name} (32 bits)" if header[4] == 1 else name


class _Load(NamedTuple):
    """A part of the file that is loaded to memory."""

    offset: int
    address: int
    size: int


def virtual_address(path: str, offset: int) -> int | None:
    """The address, as the library's symbols count it, of a place in the file; None where that is not loaded."""
    for load in _loads(path, _version(path)):
        if load.offset <= offset < load.offset + load.size:
            return offset - load.offset + load.address
    return None


class _Version(NamedTuple):
    """Of a file: a library may be built anew in its place while we live."""

    device: int
    inode: int
    size: int
    modified_ns: int


def _version(path: str) -> _Version:
    found = Path(path).stat()
    return _Version(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _loads(path: str, _: _Version) -> tuple[_Load, ...]:
    """The program headers of type LOAD, of a 64-bit little-endian file."""
    with Path(path).open("rb") as file:
        header = file.read(64)
        if len(header) < 64 or not header.startswith(_MAGIC + b"\x02\x01"):
            raise ValueError(f"{path} is no 64-bit ELF file")
        table_at = struct.unpack_from("<Q", header, 32)[0]
        entry_bytes, count = struct.unpack_from("<HH", header, 54)
        file.seek(table_at)
        table = file.read(entry_bytes * count)
    entries = (struct.unpack_from("<IIQQQQ", table, k * entry_bytes) for k in range(len(table) // max(entry_bytes, 56)))
    return tuple(_Load(offset, address, size) for kind, _, offset, address, _, size in entries if kind == _LOAD)


def symbol_at(path: str, address: int) -> str:
    """The function that the address is in, demangled where c++filt can; "" where the library has no symbol there.

    Tens of milliseconds for the largest libraries.
    """
    return _symbol_at(path, _version(path), address)


@functools.lru_cache(maxsize=256)
def _symbol_at(path: str, _: _Version, address: int) -> str:
    from elftools.elf.elffile import ELFFile

    with Path(path).open("rb") as file:
        elf = ELFFile(file)
        for name in (".dynsym", ".symtab"):
            section = elf.get_section_by_name(name)
            found = _covering(section, address) if section is not None else ""
            if found:
                return _demangled(found)
    return ""


def _covering(section: Any, address: int) -> str:
    """Of the functions that the address is in, the one that begins last. By hand: a symbol as an object costs 20 µs,
    and there are a hundred thousand of them in torch's libraries.
    """
    data = section.data()
    best, best_name = -1, 0
    for name, info, _, where, value, size in _SYMBOL.iter_unpack(data[: len(data) // _SYMBOL.size * _SYMBOL.size]):
        if best < value <= address < value + size and where and info & 15 in _FUNCTION_TYPES:
            best, best_name = value, name
    return str(section.stringtable.get_string(best_name)) if best >= 0 else ""


def _demangled(name: str) -> str:
    tool = shutil.which("c++filt") if name.startswith("_Z") else None
    if tool is None:
        return name
    try:
        done = subprocess.run([tool, name], capture_output=True, text=True, timeout=_DEMANGLE_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return name
    return done.stdout.strip() or name
