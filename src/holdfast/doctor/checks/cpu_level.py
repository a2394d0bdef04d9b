"""Native libraries that say they need a newer CPU than this one: the ISA note that a linker leaves in them.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.diagnosis.native import cpu
from holdfast.doctor import elf_notes
from holdfast.doctor.finding import Finding, Level, ok, some_of
from holdfast.doctor.libraries import Library
from holdfast.doctor.scope import Scope

NAME = "CPU level"
LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Facts:
    level: str
    """ "x86-64-v3"; "": of another machine, which has no such notes."""
    cpu_name: str
    needs: tuple[tuple[Library, str], ...]
    """Of the libraries that say so: the level that they need."""


def look(scope: Scope) -> Facts:
    level = cpu.cpu_level()
    noted = ((library, elf_notes.level_needed(library.path)) for library in scope.libraries.libraries if level)
    return Facts(level, cpu.cpu_name(), tuple((library, needed) for library, needed in noted if needed is not None))


def judge(facts: Facts) -> list[Finding]:
    if not facts.level:
        return [ok(NAME, "not an x86_64 CPU: libraries have no such notes")]
    above = [(library, needed) for library, needed in facts.needs if needed > facts.level]
    if not above:
        noted = f"no library asks for more in its ISA note, which {len(facts.needs)} of them have"
        return [ok(NAME, f"{facts.cpu_name or 'this CPU'} is {facts.level}; {noted}")]
    packages = " ".join(sorted({library.package for library, _ in above if library.package}))
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"{len(above)} native libraries need a newer CPU than this one"
            if len(above) > 1
            else "a native library needs a newer CPU than this one",
            evidence=some_of(
                f"{library}: needs {needed}; {facts.cpu_name or 'this CPU'} is {facts.level}"
                for library, needed in above
            ),
            consequence='importing it fails with "CPU ISA level is lower than required", or a worker dies of SIGILL',
            remedy=(
                f"pip install --force-reinstall --no-binary :all: {packages}  # built for this CPU"
                if packages
                else f"CFLAGS=-march={facts.level} LDFLAGS=  # build {above[0][0]} again with these",
            ),
        )
    ]
