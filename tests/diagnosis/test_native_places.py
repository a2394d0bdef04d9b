"""From a real crash to its library, symbol and instruction, also of a library loaded within the crashing call."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import crashing
from children import Crash, Pages
from holdfast.diagnosis.evidence import Place
from holdfast.diagnosis.native.resolve import resolve
from native_libraries import (
    BAD_EXTENSION,
    BREAKPOINT,
    DIVISION,
    NULL_WRITE,
    RECURSION,
    TRAP,
    compile_library,
    missing_feature,
)

pytest.importorskip("iced_x86", reason="there on x86-64 only")


def place_of(crash: Crash, number: signal.Signals) -> Place:
    assert crash.exit_signal == number
    resolved = resolve(crash.evidence)
    assert resolved.missing == ()
    assert resolved.place is not None
    return resolved.place


def test_a_library_loaded_within_the_crashing_call(pages: Pages, tmp_path: Path) -> None:
    """The worker tells of it before the call goes on; a forked worker has told nothing until then."""
    library = compile_library(tmp_path, NULL_WRITE)
    place = place_of(pages.run(crashing.call_library, str(library), "write_to", "0"), signal.SIGSEGV)
    assert (place.library, place.symbol) == (str(library), "write_to")
    assert place.instruction.startswith("mov ")
    assert place.lacks == ()
    assert not place.is_trap


def test_an_extension_that_crashes_while_it_is_imported(pages: Pages, tmp_path: Path) -> None:
    """Its library is known before its code runs."""
    library = compile_library(tmp_path, BAD_EXTENSION)
    place = place_of(pages.run(crashing.import_extension, str(library)), signal.SIGSEGV)
    assert (place.library, place.symbol) == (str(library), "PyInit_bad_extension")


def test_an_instruction_that_this_cpu_does_not_have(pages: Pages, tmp_path: Path) -> None:
    """The instruction, the feature it needs, and that this CPU lacks it."""
    library, mnemonic, word = missing_feature(tmp_path)
    place = place_of(pages.run(crashing.call_with_memory, str(library), "use"), signal.SIGILL)
    assert (place.library, place.symbol) == (str(library), "use")
    assert place.instruction.split()[0] == mnemonic
    assert word in place.needs
    assert word in place.lacks
    assert not place.is_trap


def test_a_trap_is_told_from_a_missing_feature(pages: Pages, tmp_path: Path) -> None:
    """A compiler's ud2 is a SIGILL that every CPU gives."""
    library = compile_library(tmp_path, TRAP)
    place = place_of(pages.run(crashing.call_library, str(library), "reach_the_unreachable"), signal.SIGILL)
    assert (place.symbol, place.instruction) == ("reach_the_unreachable", "ud2")
    assert place.is_trap
    assert place.lacks == ()


def test_a_breakpoint_is_a_trap(pages: Pages, tmp_path: Path) -> None:
    """Some compilers end with int3 what must not be reached. The place is of the instruction, not of the next one."""
    library = compile_library(tmp_path, BREAKPOINT)
    died = pages.run(crashing.call_library, str(library), "stop_here")
    place = place_of(died, signal.SIGTRAP)
    assert (place.symbol, place.instruction) == ("stop_here", "int3")
    assert place.is_trap
    assert "in call_library" in died.evidence.python_stack


def test_a_division_is_found(pages: Pages, tmp_path: Path) -> None:
    library = compile_library(tmp_path, DIVISION)
    place = place_of(pages.run(crashing.call_library, str(library), "divide", "1", "0"), signal.SIGFPE)
    assert (place.symbol, place.instruction.split()[0]) == ("divide", "idiv")


def test_a_function_without_end_is_found(pages: Pages, tmp_path: Path) -> None:
    library = compile_library(tmp_path, RECURSION, "-fno-optimize-sibling-calls")
    place = place_of(pages.run(crashing.call_library, str(library), "start_descending"), signal.SIGSEGV)
    assert place.symbol == "descend"


def test_a_cpp_function_has_its_own_name(pages: Pages, tmp_path: Path) -> None:
    """Demangled where c++filt is there, which comes with the compiler."""
    source = """
    namespace images { __attribute__((noinline)) void decode(int *pixels) { *(volatile int *)pixels = 1; } }
    extern "C" void start(long at) { images::decode((int *)at); asm volatile(""); }
    """
    library = compile_library(tmp_path, source, suffix=".cc")
    place = place_of(pages.run(crashing.call_library, str(library), "start", "8"), signal.SIGSEGV)
    assert place.symbol in ("images::decode(int*)", "_ZN6images6decodeEPi")


def test_an_abort_is_placed_without_an_instruction(pages: Pages) -> None:
    """It is in the C library: in the system call by which a process signals itself."""
    place = place_of(pages.run(crashing.abort), signal.SIGABRT)
    assert "libc" in Path(place.library).name
    assert place.instruction == ""


def test_executed_data_is_in_no_library(pages: Pages) -> None:
    place = place_of(pages.run(crashing.execute_data), signal.SIGSEGV)
    assert (place.symbol, place.instruction) == ("", "")
    assert not place.library.startswith("/")


def test_an_outside_kill_has_no_place(pages: Pages) -> None:
    """It does not matter what the worker was doing."""
    ready, theirs = os.pipe()

    def kill(pid: int) -> None:
        assert os.read(ready, 16) == crashing.READY_TEXT
        os.kill(pid, signal.SIGILL)

    try:
        died = pages.run(crashing.wait_for_a_signal, str(theirs), while_running=kill, pass_fds=(theirs,))
    finally:
        os.close(ready)
        os.close(theirs)
    assert died.exit_signal == signal.SIGILL
    assert resolve(died.evidence) is died.evidence


def test_a_library_that_is_gone_is_named(pages: Pages, tmp_path: Path) -> None:
    """By its path, with why there is no more."""
    library = compile_library(tmp_path, NULL_WRITE)
    died = pages.run(crashing.call_library, str(library), "write_to", "0")
    library.unlink()
    resolved = resolve(died.evidence)
    assert resolved.place is not None
    assert resolved.place.library == str(library)
    assert any(note.startswith("place: FileNotFoundError") for note in resolved.missing)


def test_what_a_forked_child_loads_is_not_the_workers(pages: Pages, tmp_path: Path) -> None:
    library = compile_library(tmp_path, NULL_WRITE)
    died = pages.run(crashing.die_after_a_child_loaded_a_library, str(library))
    assert died.exit_signal == signal.SIGSEGV
    assert str(library) not in {mapping.path for mapping in died.evidence.mappings}
