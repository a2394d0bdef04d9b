"""An illegal instruction: a library was built for a CPU with features that this one lacks, or its code is damaged.

Signs: SIGILL that no other process sent, at an instruction that is no compiler's trap. If the CPU lacks a feature
that the instruction needs, that proves it.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.diagnosis import signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Evidence, Place

NAME = "illegal instruction"
_LEVEL_3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}


def diagnose(evidence: Evidence) -> Diagnosis | None:
    place = signs.place_of(evidence)
    if not signs.is_crash_by(evidence, wording.SIGILL) or (place is not None and place.is_trap):
        return None
    is_proven = (place is not None and bool(place.lacks)) or signs.sent_itself(evidence)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN if is_proven else Confidence.LIKELY,
        summary="died of an illegal instruction",
        because=_because(evidence, place),
        where=signs.where(evidence),
        evidence=signs.signal_line(evidence),
        advice=signs.TO_ITSELF if signs.sent_itself(evidence) else _advice(evidence, place),
    )


def _because(evidence: Evidence, place: Place | None) -> str:
    known = ", ".join(wording.one_line(text, 80) for text in (evidence.cpu, evidence.cpu_level) if text)
    cpu = f"this CPU ({known})" if known else "this CPU"
    if signs.sent_itself(evidence):
        return "the worker sent SIGILL to itself: no instruction failed"
    if place is None or not place.instruction:
        return f"{cpu} does not know an instruction of the code it ran; which one was not seen"
    instruction = wording.one_line(place.instruction, 80)
    if place.lacks:
        return f"{instruction} needs {', '.join(place.needs)}; {cpu} has no {', '.join(place.lacks)}"
    if place.needs:
        needs = ", ".join(place.needs)
        return f"{instruction} needs {needs}, which {cpu} has: its code is damaged, or the system forbids it"
    return f"{cpu} refused {instruction}: its code is damaged, or a wrong address was called"


def _advice(evidence: Evidence, place: Place | None) -> tuple[str, ...]:
    if place is None or not place.library:
        return (
            "install builds for this CPU of the native libraries the dataset uses",
            "grep -m1 flags /proc/cpuinfo   its features",
        )
    library = wording.one_line(wording.file_name(place.library), 60)
    package = signs.package_folder(place.library) if evidence.package is None else evidence.package
    flags = _flags(place.lacks, evidence.cpu_level)
    if not place.lacks:
        again = f"pip install --force-reinstall --no-cache-dir {package}" if package else f"install {library} again"
        return (f"{again}   its file may be damaged",)
    build = f"rebuild {library} without {', '.join(place.lacks)} ({flags}), or install a build for this CPU"
    source = f"CFLAGS='{flags}' pip install --force-reinstall --no-binary {package} {package}"
    return (build, source) if package else (build,)


def _flags(lacks: tuple[str, ...], level: str = "") -> str:
    """For what this CPU has; where its level is not known, for the highest that does without what it lacks."""
    if level and all(feature.startswith("avx512") or feature in _LEVEL_3 for feature in lacks):
        return f"-march={level.removesuffix('-v1')}"
    if all(feature.startswith("avx512") for feature in lacks):
        return "-march=x86-64-v3"
    if all(feature.startswith("avx512") or feature in _LEVEL_3 for feature in lacks):
        return "-march=x86-64-v2"
    return " ".join(f"-mno-{_gcc_name(feature)}" for feature in lacks)


def _gcc_name(feature: str) -> str:
    """The compiler's word for what /proc/cpuinfo calls so: sse4.1, amx-tile, avxvnni."""
    known = {"avx_vnni": "avxvnni", "sha_ni": "sha", "pclmulqdq": "pclmul"}
    return known.get(feature) or feature.replace("_", "-" if feature.startswith("amx_") else ".")
