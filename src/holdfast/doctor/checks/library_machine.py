"""Native libraries that are made for another machine: for aarch64 on x86_64, say.

An extension module for this Python counts, and a package none of whose libraries are for this machine. Some packages
bring libraries for several machines and load the right one: those do not.

Runs in: main process.
"""

from __future__ import annotations

import importlib.machinery
import platform
from collections import defaultdict
from dataclasses import dataclass

from holdfast.diagnosis.native.elf import machine_of
from holdfast.doctor.finding import Finding, Level, ok, some_of
from holdfast.doctor.libraries import Library
from holdfast.doctor.scope import Scope
from holdfast.words import plural

NAME = "library machine"
LIMIT_S = 90.0
_SAME = {"arm64": "aarch64", "AMD64": "x86_64", "amd64": "x86_64"}
_TAGGED = tuple(suffix for suffix in importlib.machinery.EXTENSION_SUFFIXES if suffix != ".so")


@dataclass(frozen=True, slots=True)
class Facts:
    machine: str
    libraries: tuple[tuple[Library, str], ...]
    """With the machine that each is made for."""
    is_whole: bool = True


def look(scope: Scope) -> Facts:
    machines = ((library, machine_of(library.path)) for library in scope.libraries.libraries)
    known = tuple((library, machine) for library, machine in machines if machine is not None)
    here = platform.machine()
    return Facts(_SAME.get(here, here), known, scope.libraries.is_whole)


def judge(facts: Facts) -> list[Finding]:
    wrong = _wrong(facts)
    if not wrong:
        less = "" if facts.is_whole else "; there was no time to look at all of them"
        return [ok(NAME, f"{plural(len(facts.libraries), 'native library')} for {facts.machine}{less}")]
    packages = sorted({library.package for library, _ in wrong if library.package})
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"{len(wrong)} of {len(facts.libraries)} native libraries are made for another machine",
            evidence=some_of(f"{library}: for {machine}, and this is {facts.machine}" for library, machine in wrong),
            consequence='importing them fails, often with "No such file" or "wrong ELF class" and no other word',
            remedy=(
                f"pip install --force-reinstall --no-cache-dir {' '.join(packages)}"
                if packages
                else f"file {wrong[0][0].path}  # then build it again on this machine",
            ),
        )
    ]


def _wrong(facts: Facts) -> list[tuple[Library, str]]:
    right: defaultdict[str, int] = defaultdict(int)
    for library, machine in facts.libraries:
        right[library.package] += machine == facts.machine
    return [
        (library, machine)
        for library, machine in facts.libraries
        if machine != facts.machine
        and (library.path.endswith(_TAGGED) or not library.package or not right[library.package])
    ]
