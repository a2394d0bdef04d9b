"""What is read from ELF files: their machine, addresses and symbols; and what an instruction and this CPU are."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

import pytest

from holdfast.diagnosis.native import elf
from holdfast.diagnosis.native.cpu import cpu_flags, cpu_level, cpu_name, level_of
from holdfast.diagnosis.native.instruction import decode, is_trap
from native_libraries import NULL_WRITE, compile_library

on_x86_64_linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="of x86_64 Linux"
)
AARCH64, S390X = 183, 22


def header(machine: int, order: str = "<") -> bytes:
    ident = b"\x7fELF\x02" + (b"\x01" if order == "<" else b"\x02") + b"\x01" + bytes(9)
    return ident + struct.pack(f"{order}HHI", 3, machine, 1) + bytes(40)


def test_a_library_of_another_machine_is_named(tmp_path: Path) -> None:
    """Where dlopen says "No such file"."""
    library = tmp_path / "libfast.so"
    library.write_bytes(header(AARCH64))
    assert elf.machine_of(str(library)) == "aarch64"


def test_a_machine_of_the_other_byte_order(tmp_path: Path) -> None:
    library = tmp_path / "libfast.so"
    library.write_bytes(header(S390X, order=">"))
    assert elf.machine_of(str(library)) == "s390x"


@on_x86_64_linux
def test_a_library_of_this_machine_is_right() -> None:
    assert elf.machine_of(sys.executable) == "x86_64"


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\nexit 0 # and more than twenty bytes\n"])
def test_what_is_no_elf_file_has_no_machine(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.so"
    path.write_bytes(content)
    assert elf.machine_of(str(path)) is None
    assert elf.machine_of(str(tmp_path)) is None
    assert elf.machine_of("\0") is None


@on_x86_64_linux
def test_symbols_are_found_by_address(tmp_path: Path) -> None:
    """The function that covers it, from its first byte to its last, and none beyond."""
    from elftools.elf.elffile import ELFFile

    library = compile_library(tmp_path, NULL_WRITE)
    with library.open("rb") as file:
        symbol = ELFFile(file).get_section_by_name(".dynsym").get_symbol_by_name("write_to")[0]
    first, size = symbol["st_value"], symbol["st_size"]
    assert elf.symbol_at(str(library), first) == "write_to"
    assert elf.symbol_at(str(library), first + size - 1) == "write_to"
    assert elf.symbol_at(str(library), first + size) != "write_to"
    assert elf.symbol_at(str(library), 1 << 40) == ""


@on_x86_64_linux
def test_a_place_in_the_file_has_an_address(tmp_path: Path) -> None:
    """Made with the code moved: in many libraries the two are the same number by chance."""
    library = compile_library(tmp_path, NULL_WRITE, "-Wl,-Ttext-segment=0x400000")
    assert elf.virtual_address(str(library), 0) == 0x400000
    assert elf.virtual_address(str(library), 1 << 40) is None


@on_x86_64_linux
def test_a_library_that_was_built_anew_is_read_anew(tmp_path: Path) -> None:
    """In the same place, in a session that lasts: the old names and addresses would be told."""
    path = str(compile_library(tmp_path, NULL_WRITE, "-Wl,-Ttext-segment=0x400000"))
    at = next(at for at in range(0x401000, 0x402000) if elf.symbol_at(path, at) == "write_to")
    assert elf.virtual_address(path, 0) == 0x400000
    compile_library(tmp_path, NULL_WRITE.replace("write_to", "put_there"), "-Wl,-Ttext-segment=0x400000")
    assert elf.symbol_at(path, at) == "put_there"
    compile_library(tmp_path, NULL_WRITE, "-Wl,-Ttext-segment=0x800000")
    assert elf.virtual_address(path, 0) == 0x800000


def test_a_truncated_table_of_headers_is_an_error_or_empty(tmp_path: Path) -> None:
    """Never an endless loop, nor an answer."""
    path = tmp_path / "torn.so"
    for entry_bytes in (0, 1, 56, 65535):
        made = bytearray(header(62).ljust(64, b"\0"))
        struct.pack_into("<Q", made, 32, 60)
        struct.pack_into("<HH", made, 54, entry_bytes, 65535)
        path.write_bytes(bytes(made) + bytes(100))
        elf._loads.cache_clear()
        assert elf.virtual_address(str(path), 0) is None


INSTRUCTIONS = {
    "62f1fd481007": ("vmovupd zmm0,[rdi]", {"avx512f"}),
    "c5fc5807": ("vaddps ymm0,ymm0,[rdi]", {"avx"}),
    "c5fdfec1": ("vpaddd ymm0,ymm0,ymm1", {"avx2"}),
    "62f27d4850c1": ("vpdpbusd zmm0,zmm0,zmm1", {"avx512_vnni"}),
    "c4e27d50c1": ("vpdpbusd ymm0,ymm0,ymm1", {"avx_vnni"}),
    "c4e27b49c0": ("tilezero tmm0", {"amx_tile"}),
    "c4e2f3f5c2": ("pdep rax,rcx,rdx", {"bmi2"}),
    "f3480fb8c1": ("popcnt rax,rcx", {"popcnt"}),
    "f3480fbdc1": ("lzcnt rax,rcx", {"abm"}),
    "62f2f548b4c2": ("vpmadd52luq zmm0,zmm1,zmm2", {"avx512ifma"}),
    "0f38c8c1": ("sha1nexte xmm0,xmm1", {"sha_ni"}),
    "f20f7cc1": ("haddps xmm0,xmm1", {"pni"}),
    "8b07": ("mov eax,[rdi]", set()),
    "0f0b": ("ud2", set()),
    "06": ("(bad)", set()),
}


@pytest.mark.parametrize("code", INSTRUCTIONS)
def test_an_instruction_and_what_it_needs(code: str) -> None:
    """In the words of /proc/cpuinfo."""
    pytest.importorskip("iced_x86", reason="there on x86-64 only")
    text, needs = INSTRUCTIONS[code]
    found = decode(bytes.fromhex(code), 0x1000)
    assert (found.text, set(found.needs)) == (text, needs)


@pytest.mark.parametrize("code", ["0f0b", "0fb9c0", "67 0fb9400c", "0fffc0", "cc"])
def test_a_trap_is_known_without_a_decoder(code: str) -> None:
    assert is_trap(bytes.fromhex(code))


@pytest.mark.parametrize("code", ["", "0f", "62f1fd481007", "90", "67678b07"])
def test_what_is_no_trap(code: str) -> None:
    assert not is_trap(bytes.fromhex(code))


@on_x86_64_linux
def test_this_cpu_has_a_name_flags_and_a_level() -> None:
    assert {"lm", "sse2"} <= cpu_flags()
    assert cpu_name()
    assert cpu_level().startswith("x86-64-v")


V2 = frozenset({"lm", "cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
V3 = V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}


def test_levels_are_reached_in_order() -> None:
    """A level counts only with all those below it."""
    assert [level_of(flags) for flags in (frozenset({"lm"}), V2, V3, V4)] == [f"x86-64-v{k}" for k in (1, 2, 3, 4)]
    assert level_of(V4 - {"bmi2"}) == "x86-64-v2"
    assert level_of(frozenset()) == ""
