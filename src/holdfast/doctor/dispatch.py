"""Whether a library uses AVX-512 or AMX without asking the CPU first. A rule, not a proof: what it says is a warning.

    asks      an instruction cpuid or xgetbv, an IFUNC, or a name such as __cpu_model, cpuinfo_has_x86_avx512f,
              arrow::internal::CpuInfo: what it has of AVX-512 it chooses at run time, itself or by another library.
              The rule clears all of torch's, numpy's, pyarrow's and scipy's libraries, and none that was built so that
              it needs AVX-512.
    uses      any EVEX instruction, not only on zmm registers, or one on AMX tiles, that needs what is asked about;
              others (AVX2, FMA, AES ...) are not looked for

x86 has no boundaries between instructions, and any byte may begin one. What looks like an instruction counts if code
that is decoded from a little before comes to it. Runs in: main process.
"""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.diagnosis.native.elf import symbol_at
from holdfast.diagnosis.native.instruction import Instruction, decode

_X86_64 = "EM_X86_64"
_CPUID, _XGETBV = b"\x0f\xa2", b"\x0f\x01\xd0"
_IRELATIVE = 37  # R_X86_64_IRELATIVE
_IFUNC = 10  # STT_GNU_IFUNC
_SHF_EXECINSTR, _PF_X = 4, 1
_SYMBOL_BYTES = _RELOCATION_BYTES = 24
_NAMES = re.compile(rb"__cpu_model|__cpu_indicator_init|cpu_?info|cpu_?features", re.IGNORECASE)
_LONGEST_BYTES = 15
_RUN_UPS_BYTES = (96, 61, 38)  # from where code is decoded; most of them must agree
_SLICE_BYTES = 1 << 20


def _evex_pattern() -> re.Pattern[bytes]:
    """62, then a byte whose bits say which of the maps 1 to 7, then one in which bit 2 is set."""
    second = bytes(byte for byte in range(256) if not byte & 8 and byte & 7)
    third = bytes(byte for byte in range(256) if byte & 4)
    return re.compile(b"\x62[" + re.escape(second) + b"][" + re.escape(third) + b"]", re.DOTALL)


def _amx_pattern() -> re.Pattern[bytes]:
    """C4, then a byte whose low bits say map 2, one in which W and L are 0, and the opcode of an AMX instruction."""
    second = bytes(byte for byte in range(256) if byte & 31 == 2)
    third = bytes(byte for byte in range(256) if not byte & 0x84)
    return re.compile(b"\xc4[" + re.escape(second) + b"][" + re.escape(third) + b"][IKl\\\\^]", re.DOTALL)


_PATTERNS = _evex_pattern(), _amx_pattern()
_LOOKED_FOR = ("avx512", "amx")


class OutOfTime(Exception):
    """The deadline passed before the library was read."""


@dataclass(frozen=True, slots=True)
class Use:
    """An instruction that would end a process on this CPU, in a library that does not ask."""

    instruction: str
    needs: tuple[str, ...]
    """In the words of /proc/cpuinfo: of AVX-512 and AMX what is asked about."""
    offset: int
    symbol: str


class _Code(NamedTuple):
    """A part of the file that is run."""

    offset: int
    address: int
    size: int


def find_use(path: str, lacking: Callable[[str], bool], deadline_s: float) -> Use | None:
    """The first unguarded use of a feature that `lacking` says this CPU has not; None: none, or it asks first.

    Raises OutOfTime past the deadline, of `time.monotonic`.
    """
    from elftools.elf.elffile import ELFFile

    with Path(path).open("rb") as file:
        elf = ELFFile(file)
        if elf["e_machine"] != _X86_64 or elf.elfclass != 64:
            return None
        codes = _codes(elf)
        if not codes or _asks_by_name(elf):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if _asks_by_instruction(data, codes, deadline_s):
                return None
            return _first_use(data, codes, path, lacking, deadline_s)


def _codes(elf: Any) -> list[_Code]:
    """By its sections: a segment that is run may have tables in it as well. They may have been stripped, though."""
    sections = [part for part in elf.iter_sections() if part["sh_flags"] & _SHF_EXECINSTR]
    if sections:
        return [_Code(part["sh_offset"], part["sh_addr"], part["sh_size"]) for part in sections]
    segments = (part for part in elf.iter_segments() if part["p_type"] == "PT_LOAD" and part["p_flags"] & _PF_X)
    return [_Code(part["p_offset"], part["p_vaddr"], part["p_filesz"]) for part in segments]


def _asks_by_name(elf: Any) -> bool:
    """By hand: a symbol as an object costs 20 µs, and there are a hundred thousand of them in torch's libraries."""
    for section in elf.iter_sections():
        kind = section["sh_type"]
        if kind == "SHT_STRTAB" and _NAMES.search(section.data()):
            return True
        if kind in ("SHT_DYNSYM", "SHT_SYMTAB"):
            if any(info & 15 == _IFUNC for info in set(section.data()[4::_SYMBOL_BYTES])):
                return True
        elif kind == "SHT_RELA" and _IRELATIVE in section.data()[8::_RELOCATION_BYTES]:
            return True
    return False


def _asks_by_instruction(data: mmap.mmap, codes: list[_Code], deadline_s: float) -> bool:
    for code in codes:
        for pattern in (_XGETBV, _CPUID):
            at = data.find(pattern, code.offset, code.offset + code.size)
            while at >= 0:
                _check_time(deadline_s)
                if _is_instruction(data, code, at):
                    return True
                at = data.find(pattern, at + 1, code.offset + code.size)
    return False


def _first_use(
    data: mmap.mmap, codes: list[_Code], path: str, lacking: Callable[[str], bool], deadline_s: float
) -> Use | None:
    for code in codes:
        for at in _places(data, code, deadline_s):
            found = _decoded(data, code, at)
            needs = tuple(word for word in found.needs if word.startswith(_LOOKED_FOR) and lacking(word))
            if needs and _is_instruction(data, code, at):
                symbol = symbol_at(path, at - code.offset + code.address)
                return Use(found.text, needs, at, symbol)
    return None


def _places(data: mmap.mmap, code: _Code, deadline_s: float) -> Iterator[int]:
    for start in range(code.offset, code.offset + code.size, _SLICE_BYTES):
        _check_time(deadline_s)
        end = min(start + _SLICE_BYTES + 3, code.offset + code.size)  # what begins at the edge is in this slice
        for pattern in _PATTERNS:
            yield from (match.start() for match in pattern.finditer(data, start, end))


def _decoded(data: mmap.mmap, code: _Code, at: int) -> Instruction:
    end = min(at + _LONGEST_BYTES, code.offset + code.size)
    return decode(data[at:end], at - code.offset + code.address)


def _is_instruction(data: mmap.mmap, code: _Code, at: int) -> bool:
    """Whether code that is decoded from a little before comes to this place. From the beginning of all code, always."""
    starts = {max(code.offset, at - run_up) for run_up in _RUN_UPS_BYTES}
    agree = sum(_comes_to(data, start, at) for start in starts)
    return 2 * agree > len(starts)


def _comes_to(data: mmap.mmap, start: int, at: int) -> bool:
    from iced_x86 import Decoder

    decoder = Decoder(64, data[start : at + _LONGEST_BYTES], ip=start)
    while decoder.ip < at and decoder.can_decode:
        decoder.decode()
    return bool(decoder.ip == at)


def _check_time(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise OutOfTime
