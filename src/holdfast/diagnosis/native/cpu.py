"""What this machine's CPU can do, in the words of /proc/cpuinfo, and the level of x86-64 that makes.

Runs in: main process.
"""

from __future__ import annotations

import functools
from pathlib import Path

_LEVELS = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
"""What each level adds to the one before, after the x86-64 psABI: what `gcc -march=` takes by these names."""


def cpu_flags() -> frozenset[str]:
    """Of the first CPU; empty where there is no /proc/cpuinfo, or one that has no flags."""
    return frozenset(_field("flags").split())


def cpu_name() -> str:
    """As the CPU calls itself: "AMD EPYC 9B14"; "" where it does not say."""
    return _field("model name")


def cpu_level() -> str:
    """ "x86-64-v1" to "x86-64-v4"; "" where this is another machine."""
    return level_of(cpu_flags())


def level_of(flags: frozenset[str]) -> str:
    if "lm" not in flags:
        return ""
    reached = "x86-64-v1"
    for level, words in _LEVELS.items():
        if not flags.issuperset(words.split()):
            break
        reached = level
    return reached


@functools.cache
def _field(name: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
