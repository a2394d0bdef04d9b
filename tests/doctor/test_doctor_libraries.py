"""Native libraries: found where they are installed, and real ones for the wrong machine, the wrong CPU, and AVX-512."""

from __future__ import annotations

import math
import platform
import struct
import sys
import time
from pathlib import Path

import pytest

from holdfast.diagnosis.native.cpu import cpu_flags
from holdfast.doctor import dispatch, elf_notes, libraries
from holdfast.doctor.checks import cpu_level, instructions, library_machine
from holdfast.doctor.finding import Level
from holdfast.doctor.libraries import Found, Library
from holdfast.doctor.scope import Scope
from native_libraries import NULL_WRITE, compile_library

on_x86_64_linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="of x86_64 Linux"
)
AARCH64 = 183
V3 = frozenset(
    "lm cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c fma movbe xsave".split()  # noqa: SIM905
)


class OfThese(Scope):
    """A machine with these libraries and no others."""

    def __init__(self, *paths: Path) -> None:
        super().__init__(deep=True)
        self.__dict__["libraries"] = Found(tuple(Library(str(path)) for path in paths))


# --- where they are --------------------------------------------------------------------------------------------------


def test_libraries_of_packages_that_datasets_use_are_found_by_default() -> None:
    """numpy is one, and is installed wherever holdfast is."""
    found = libraries.find(deep=False)
    assert found.is_whole
    assert "numpy" in {library.package for library in found.libraries}
    assert all(Path(library.path).is_file() for library in found.libraries)


def test_all_that_is_installed_is_found_with_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below every directory that Python imports from, but not below the current one by itself."""
    for place in (
        "installed/mine/fast.so",
        "installed/mine/libfast.so.3.1",
        "here/data/fast.so",
        "installed/mine/a.sol",
    ):
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), str(tmp_path / "installed"), "", "/nowhere"])
    found = {Path(library.path).name for library in libraries.find(deep=True).libraries}
    assert found == {"fast.so", "libfast.so.3.1"}
    assert [one for one in libraries.find(deep=True).libraries if "here" in one.path] == []


def test_what_a_process_has_mapped_is_looked_at_too(tmp_path: Path) -> None:
    """Once, by its real path, and only libraries."""
    real, link = tmp_path / "mine.so", tmp_path / "link.so"
    real.touch()
    link.symlink_to(real)
    found = libraries.find(deep=False, mapped=[str(real), str(link), str(tmp_path / "data.bin")])
    assert [library for library in found.libraries if str(tmp_path) in library.path] == [Library(str(real))]


def test_there_is_an_end_to_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found by then counts, and that it is not all is said."""
    monkeypatch.setattr(libraries, "_LIMIT_S", -1.0)
    found = libraries.find(deep=False)
    assert not found.is_whole
    facts = library_machine.Facts("x86_64", (), found.is_whole)
    assert "no time to look at all" in library_machine.judge(facts)[0].what


# --- another machine -------------------------------------------------------------------------------------------------


@on_x86_64_linux
def test_a_real_library_with_the_header_of_another_machine_is_a_problem(tmp_path: Path) -> None:
    """As one that was installed from a wheel for another platform."""
    library = compile_library(tmp_path, NULL_WRITE)
    assert library_machine.judge(library_machine.look(OfThese(library)))[0].level is Level.OK
    header = bytearray(library.read_bytes())
    struct.pack_into("<H", header, 18, AARCH64)
    library.write_bytes(header)
    (finding,) = library_machine.judge(library_machine.look(OfThese(library)))
    assert finding.level is Level.PROBLEM
    assert finding.evidence == (f"{library}: for aarch64, and this is x86_64",)


# --- notes -----------------------------------------------------------------------------------------------------------


@on_x86_64_linux
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_the_note_that_a_linker_leaves_is_read(level: str, tmp_path: Path) -> None:
    """`-z x86-64-v3` is what distributions build with."""
    library = compile_library(tmp_path, NULL_WRITE, f"-Wl,-z,{level}")
    assert elf_notes.level_needed(str(library)) == level
    facts = cpu_level.Facts("x86-64-v1", "old", ((Library(str(library)), level),))
    assert cpu_level.judge(facts)[0].level is Level.PROBLEM


@on_x86_64_linux
def test_a_library_without_a_note_needs_nothing(tmp_path: Path) -> None:
    library = compile_library(tmp_path, NULL_WRITE, "-fcf-protection=none")
    assert elf_notes.level_needed(str(library)) is None
    assert cpu_level.judge(cpu_level.look(OfThese(library)))[0].level is Level.OK


@on_x86_64_linux
def test_a_damaged_file_has_no_note(tmp_path: Path) -> None:
    """Cut anywhere in its headers, or with sizes that lead nowhere: no answer, no exception, no endless loop."""
    whole = compile_library(tmp_path, NULL_WRITE, "-Wl,-z,x86-64-v3").read_bytes()
    path = tmp_path / "torn.so"
    for length in (0, 4, 20, 63, 64, 100, 400, 700):
        path.write_bytes(whole[:length])
        assert elf_notes.level_needed(str(path)) in (None, "x86-64-v3")
    for at in range(64, 1000, 7):
        path.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        elf_notes.level_needed(str(path))
    assert elf_notes.level_needed(str(tmp_path / "nowhere.so")) is None


# --- AVX-512 ---------------------------------------------------------------------------------------------------------

AVX512 = "typedef double v8 __attribute__((vector_size(64)));\nvoid use(v8 *p) { *p = *p + p[1]; }\n"
ON_XMM = "typedef long long v2 __attribute__((vector_size(16)));\nvoid use(v2 *p) { *p = *p * p[1]; }\n"
ASKS_CPUID = (
    AVX512
    + """
#include <cpuid.h>
void plain(double *p) { p[0] += p[8]; }
void add(v8 *p) {
    unsigned a, b, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    if (b & bit_AVX512F) use(p); else plain((double *)p);
}
"""
)
ASKS_XGETBV = (
    AVX512
    + """
unsigned enabled(void) { unsigned a, d; __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0)); return a; }
"""
)
ASKS_BUILTIN = AVX512 + 'int can(void) { return __builtin_cpu_supports("avx512f"); }'
ASKS_IFUNC = (
    AVX512
    + """
static void plain(double *p) { p[0] += p[8]; }
static void (*chosen(void))(double *) { return plain; }
void add(double *p) __attribute__((ifunc("chosen")));
"""
)
ASKS_ELSEWHERE = (
    AVX512
    + """
extern int cpuinfo_has_x86_avx512f(void);
void add(v8 *p) { if (cpuinfo_has_x86_avx512f()) use(p); }
"""
)
GUARDED = {
    "cpuid": ASKS_CPUID,
    "xgetbv": ASKS_XGETBV,
    "__builtin_cpu_supports": ASKS_BUILTIN,
    "an IFUNC": ASKS_IFUNC,
    "the cpuinfo library": ASKS_ELSEWHERE,
}
LOOKS_LIKE_IT = (
    'const char *text(void) { return "b\\xf1\\xfdH\\x10\\x07"; }\nlong number(long a) { return a * 0x4810fdf162L; }'
)


def scanned(library: Path, flags: frozenset[str] = V3) -> instructions.Facts:
    return instructions.scan((Library(str(library), "fast"),), flags, budget_s=60.0)


@on_x86_64_linux
@pytest.mark.parametrize(
    ("source", "flag", "needs"), [(AVX512, "-mavx512f", "avx512f"), (ON_XMM, "-mavx512dq", "avx512dq")]
)
def test_a_library_that_needs_avx512_and_does_not_ask_is_warned_of(
    source: str, flag: str, needs: str, tmp_path: Path
) -> None:
    """With the instruction, the function and what it needs: on zmm registers, and on xmm as well."""
    library = compile_library(tmp_path, source, flag, "-mavx512vl")
    facts = scanned(library)
    ((_, use),) = facts.unguarded
    assert needs in use.needs
    assert use.symbol == "use"
    (finding,) = instructions.judge(facts)
    assert finding.level is Level.WARNING
    assert "in use:" in finding.evidence[0]


AMX = "#include <immintrin.h>\nvoid use(void *p) { _tile_loadd(0, p, 64); _tile_dpbssd(0, 1, 2); _tile_zero(0); }\n"


@on_x86_64_linux
def test_a_library_that_needs_amx_is_not_called_ok(tmp_path: Path) -> None:
    """It has no note of that, for no level has AMX; a CPU with all of AVX-512 may lack it."""
    library = compile_library(tmp_path, AMX, "-mamx-tile", "-mamx-int8")
    facts = scanned(library)
    ((_, use),) = facts.unguarded
    assert "amx_tile" in use.needs
    assert use.symbol == "use"
    (finding,) = instructions.judge(facts)
    assert finding.level is Level.WARNING
    assert " AMX without asking" in finding.what
    assert scanned(library, V3 | {"amx_tile", "amx_int8"}).unguarded == ()


@on_x86_64_linux
def test_what_is_ok_is_said_of_what_was_looked_at(tmp_path: Path) -> None:
    """A library of AVX2 may need it, for all that this doctor knows: no finding says that nothing asks for more."""
    library = compile_library(tmp_path, ON_XMM, "-mavx2")
    (noted,) = cpu_level.judge(cpu_level.look(OfThese(library)))
    (found,) = instructions.judge(scanned(library, frozenset({"lm"})))
    assert (noted.level, found.level) == (Level.OK, Level.OK)
    assert "in its ISA note, which " in noted.what
    assert "other instructions are not looked for" in found.what


@on_x86_64_linux
@pytest.mark.parametrize("how", GUARDED)
def test_a_library_that_asks_first_is_not(how: str, tmp_path: Path) -> None:
    library = compile_library(tmp_path, GUARDED[how], "-mavx512f")
    assert scanned(library).unguarded == ()


@on_x86_64_linux
def test_a_stripped_library_is_read_all_the_same(tmp_path: Path) -> None:
    library = compile_library(tmp_path, AVX512, "-mavx512f", "-s")
    assert len(scanned(library).unguarded) == 1


@on_x86_64_linux
def test_bytes_that_look_like_avx512_are_none(tmp_path: Path) -> None:
    """In the middle of another instruction, or in a text."""
    library = compile_library(tmp_path, LOOKS_LIKE_IT)
    assert scanned(library).unguarded == ()


@on_x86_64_linux
def test_a_cpu_that_has_it_is_not_warned(tmp_path: Path) -> None:
    library = compile_library(tmp_path, AVX512, "-mavx512f")
    assert scanned(library, V3 | {"avx512f"}).unguarded == ()


@on_x86_64_linux
def test_a_damaged_library_is_passed_over(tmp_path: Path) -> None:
    torn = tmp_path / "torn.so"
    torn.write_bytes(compile_library(tmp_path, AVX512, "-mavx512f").read_bytes()[:900])
    facts = scanned(torn)
    assert (facts.looked_at, facts.unguarded) == (1, ())


@on_x86_64_linux
def test_a_library_is_not_called_good_without_what_decodes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken installation of ours is no damaged library: the check says that nothing could be checked."""
    library = compile_library(tmp_path, AVX512, "-mavx512f")
    monkeypatch.setitem(sys.modules, "iced_x86", None)
    with pytest.raises(ImportError, match="iced_x86"):
        scanned(library)


@on_x86_64_linux
def test_the_scan_ends_when_its_time_is_up(tmp_path: Path) -> None:
    """And says how much was not looked at."""
    library = Library(str(compile_library(tmp_path, AVX512, "-mavx512f")))
    facts = instructions.scan((library, library), V3, budget_s=-1.0)
    assert (facts.looked_at, facts.not_reached) == (0, 2)
    with pytest.raises(dispatch.OutOfTime):
        dispatch.find_use(library.path, lambda word: True, time.monotonic() - 1)


@on_x86_64_linux
@pytest.mark.long
def test_no_library_that_is_installed_here_is_warned_of() -> None:
    """torch, numpy, scipy and pyarrow all have AVX-512, and all ask first."""
    found = libraries.find(deep=False)
    facts = instructions.scan(found.libraries, V3, budget_s=math.inf)
    assert facts.unguarded == ()
    assert facts.looked_at == len(found.libraries)


@on_x86_64_linux
def test_the_check_looks_at_what_this_machine_lacks(tmp_path: Path) -> None:
    """By the flags of this very CPU: it warns exactly if AVX-512 is missing here."""
    library = compile_library(tmp_path, AVX512, "-mavx512f")
    facts = instructions.look(OfThese(library))
    assert bool(facts.unguarded) == ("avx512f" not in cpu_flags())
