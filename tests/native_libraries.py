"""Libraries for the tests of native crashes, compiled where they run: a crash must be of real machine code.

Runs in: the test process.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.diagnosis.native.cpu import cpu_flags

COMPILE_LIMIT_S = 60.0


def compile_library(folder: Path, source: str, *flags: str, name: str = "made", suffix: str = ".c") -> Path:
    """A shared library of C source, or of C++ (".cc"). Skips the test, with what would help, where none can be made."""
    tool = "g++" if suffix == ".cc" else "gcc"
    if shutil.which(tool) is None:
        pytest.skip(f"needs a compiler: apt-get install {tool}")
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

BREAKPOINT = 'void stop_here(void) { __asm__ volatile("int3"); }'

RECURSION = """
int descend(volatile char *above) {
    volatile char here[512];
    here[0] = above[0];
    return descend(here) + here[0];
}
int start_descending(void) { char top[1] = {1}; return descend(top); }
"""

RECOVERY = """
#include <setjmp.h>
#include <signal.h>
static sigjmp_buf back;
static void recover(int number) { siglongjmp(back, 7); }
void take_faults(void) {
    struct sigaction action = {.sa_handler = recover, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
}
int probe(void) {
    int reached = sigsetjmp(back, 1);
    return reached ? reached : *(volatile int *)8;
}
"""

BAD_EXTENSION = """
void *PyInit_bad_extension(void) { *(volatile int *)8 = 1; return 0; }
"""

AVX512_LOAD = """
#include <immintrin.h>
void use(double *p) { _mm512_storeu_pd(p, _mm512_add_pd(_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8))); }
"""
TILE_ZERO = """
#include <immintrin.h>
void use(double *p) { _tile_zero(0); }
"""
SSE4A_INSERT = """
#include <x86intrin.h>
void use(__m128i *p) { _mm_storeu_si128(p, _mm_inserti_si64(_mm_loadu_si128(p), _mm_loadu_si128(p + 1), 3, 5)); }
"""

MISSING_FEATURES = {
    "avx512f": ("vmovupd", "-mavx512f", AVX512_LOAD),
    "amx_tile": ("tilezero", "-mamx-tile", TILE_ZERO),
    "sse4a": ("insertq", "-msse4a", SSE4A_INSERT),
}
"""By the word of /proc/cpuinfo: the instruction, the compiler's flag, the source.

Every CPU lacks one of these, and refuses it in earnest. Other features may be hidden by a virtual machine, so that they
are not in /proc/cpuinfo and work all the same.
"""

DOUBLE_FREE = """
#include <stdlib.h>
void free_twice(void) { void *volatile p = malloc(64); free(p); free(p); }
"""

UNCAUGHT = """
#include <stdexcept>
extern "C" void throw_it(void) { throw std::runtime_error("bad block"); }
"""


def missing_feature(folder: Path) -> tuple[Path, str, str]:
    """A library whose `use` needs what this CPU lacks; the instruction, and the feature in the words of cpuinfo."""
    missing = [feature for feature in MISSING_FEATURES if feature not in cpu_flags()]
    if not missing:
        pytest.skip(f"this CPU has all of {', '.join(MISSING_FEATURES)}")
    name, flag, source = MISSING_FEATURES[missing[0]]
    return compile_library(folder, source, flag), name, missing[0]
