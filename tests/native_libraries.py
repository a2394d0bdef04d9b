"""Libraries for the tests of native crashes, compiled where they run: a crash must be of real machine code.

Runs in: the test process.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILE_LIMIT_S = 60.0


def compile_library(folder: Path, source: str, *flags: str, name: str = "made", suffix: str = ".c") -> Path:
    """A shared library of C source (".c") or C++ (".cc"); skips the test, with what would help, where none can be made."""
    tool, package = ("g++", "g++") if suffix == ".cc" else ("gcc", "gcc")
    if shutil.which(tool) is None:
        pytest.skip(f"needs a compiler: apt-get install {package}")
    written = folder / f"{name}{suffix}"
    written.write_text(source)
    library = folder / f"{name}.so"
    command = [tool, "-shared", "-fPIC", "-O1", *flags, "-o", str(library), str(written)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    if done.returncode:
        pytest.skip(f"this compiler cannot do it: {' '.join(command)}\n{done.stderr}")
    return library


NULL_WRITE = "void write_to(long address) { *(volatile int *)address = 1; }"

DIVISION = "int divide(int a, int b) { return a / b; }"

TRAP = "void reach_the_unreachable(void) { __builtin_trap(); }"

RECURSION = """
int descend(volatile char *above) {
    volatile char here[512];
    here[0] = above[0];
    return descend(here) + here[0];
}
int start_descending(void) { char top[1] = {1}; return descend(top); }
"""

BAD_EXTENSION = """
void *PyInit_bad_extension(void) { *(volatile int *)8 = 1; return 0; }
"""

MISSING_FEATURES = {
    "avx512f": (
        "vmovupd",
        "-mavx512f",
        "#include <immintrin.h>\nvoid use(double *p) { _mm512_storeu_pd(p, _mm512_add_pd(_mm512_loadu_pd(p), _mm512_loadu_pd(p))); }",
    ),
    "amx_tile": ("tilezero", "-mamx-tile", "#include <immintrin.h>\nvoid use(double *p) { _tile_zero(0); }"),
    "sse4a": (
        "insertq",
        "-msse4a",
        "#include <x86intrin.h>\nvoid use(__m128i *p) { *p = _mm_inserti_si64(*p, p[1], 3, 5); }",
    ),
}
"""By the word of /proc/cpuinfo: the instruction, the compiler's flag and source. Every CPU lacks one of them, and refuses
it in earnest: others may be hidden by a virtual machine and work all the same.
"""
