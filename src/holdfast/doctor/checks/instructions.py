"""Native libraries that use AVX-512 or AMX without asking the CPU first, where the CPU does not have all of it.

The rule is in `dispatch.py`. A CPU that has what compilers use of AVX-512 is looked at closer only with --deep.

Runs in: main process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from holdfast.diagnosis.native import cpu
from holdfast.doctor import dispatch
from holdfast.doctor.dispatch import Use
from holdfast.doctor.finding import Finding, Level, ok, some_of
from holdfast.doctor.libraries import Library
from holdfast.doctor.scope import Scope
from holdfast.words import plural, seconds

NAME = "instructions"
LIMIT_S = 200.0
_BUDGET_S = 8.0
_DEEP_BUDGET_S = 120.0
_V4 = "x86-64-v4"


@dataclass(frozen=True, slots=True)
class Facts:
    level: str
    cpu_name: str = ""
    is_looked_for: bool = True
    """False: this CPU has AVX-512, and nobody asked for more."""
    looked_at: int = 0
    unguarded: tuple[tuple[Library, Use], ...] = ()
    not_reached: int = 0
    """Libraries that there was no time for."""
    budget_s: float = _BUDGET_S


def look(scope: Scope) -> Facts:
    level, name = cpu.cpu_level(), cpu.cpu_name()
    is_looked_for = bool(level) and (scope.deep or level != _V4)
    if not is_looked_for:
        return Facts(level, name, is_looked_for)
    budget_s = _DEEP_BUDGET_S if scope.deep else _BUDGET_S
    return scan(scope.libraries.libraries, cpu.cpu_flags(), budget_s)


def scan(libraries: tuple[Library, ...], flags: frozenset[str], budget_s: float) -> Facts:
    """Look at each library, as far as the time goes: `flags` is what the CPU has."""
    deadline, unguarded = time.monotonic() + budget_s, []
    looked_at = 0
    for library in libraries:
        try:
            use = dispatch.find_use(library.path, lambda word: word not in flags, deadline)
        except dispatch.OutOfTime:
            break
        except ImportError:  # of what decodes them: nothing could be looked at
            raise
        except Exception:  # a damaged file: whoever loads it will say so
            use = None
        looked_at += 1
        if use is not None:
            unguarded.append((library, use))
    return Facts(
        cpu.level_of(flags),
        cpu.cpu_name(),
        True,
        looked_at,
        tuple(unguarded),
        len(libraries) - looked_at,
        budget_s,
    )


def judge(facts: Facts) -> list[Finding]:
    if not facts.level:
        return [ok(NAME, "not an x86_64 CPU: there is no AVX-512 or AMX to look for")]
    if not facts.is_looked_for:
        return [
            ok(
                NAME,
                f"{facts.cpu_name or 'this CPU'} has AVX-512; its rarer parts, and AMX, are looked for with --deep",
            )
        ]
    return [*_unguarded(facts), *_out_of_time(facts)] or [
        ok(
            NAME,
            f"{plural(facts.looked_at, 'library')}: none uses AVX-512 or AMX that this CPU lacks without asking first; "
            "other instructions are not looked for",
        )
    ]


def _unguarded(facts: Facts) -> list[Finding]:
    if not facts.unguarded:
        return []
    packages = " ".join(sorted({library.package for library, _ in facts.unguarded if library.package}))
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"{_who_use(facts)} without asking whether the CPU has it, and this one has not",
            evidence=some_of(_line(library, use) for library, use in facts.unguarded),
            consequence="a worker that comes to such an instruction dies of SIGILL (illegal instruction)",
            remedy=(
                f"pip install --force-reinstall --no-binary :all: {packages}  # built for this CPU"
                if packages
                else f"CFLAGS=-march={facts.level}  # build {facts.unguarded[0][0]} again with this",
            ),
        )
    ]


def _who_use(facts: Facts) -> str:
    """ "2 native libraries use AVX-512 and AMX"."""
    number, needs = len(facts.unguarded), [word for _, use in facts.unguarded for word in use.needs]
    families = {"AVX-512": "avx512", "AMX": "amx"}
    found = " and ".join(name for name, start in families.items() if any(word.startswith(start) for word in needs))
    return f"a native library uses {found}" if number == 1 else f"{number} native libraries use {found}"


def _line(library: Library, use: Use) -> str:
    where = f" in {use.symbol}" if use.symbol else ""
    return f"{library}+{use.offset:#x}{where}: {use.instruction} needs {', '.join(use.needs)}"


def _out_of_time(facts: Facts) -> list[Finding]:
    if not facts.not_reached:
        return []
    were = "was" if facts.not_reached == 1 else "were"
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"{plural(facts.not_reached, 'library')} {were} not looked at for AVX-512 and AMX",
            evidence=(f"{facts.looked_at} were, in {seconds(facts.budget_s)}",),
            consequence="one of them may use what this CPU lacks",
            remedy=("holdfast doctor --deep  # takes up to two minutes",),
        )
    ]
