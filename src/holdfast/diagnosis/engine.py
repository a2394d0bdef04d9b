"""From evidence to one diagnosis: every cause is asked, and what they say is ranked. Pure.

    evidence ──► each cause: Diagnosis | None ──► rank ──► the best one, or "unknown"

Never raises: a cause that does is a bug of holdfast; it is passed over, and the diagnosis says so among its evidence.
Standard library only. Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from holdfast.diagnosis.causes import (
    abort,
    before_first_sample,
    compiler_trap,
    copy_on_write_growth,
    cuda_after_fork,
    dataset_exception,
    deadlock_after_fork,
    descriptors_closed,
    exit_by_user_code,
    floating_point_exception,
    handle_opened_before_fork,
    hang,
    illegal_instruction,
    interrupted,
    killed_by_another_process,
    memory_growth,
    missing_main_guard,
    out_of_memory,
    over_memory_budget,
    over_memory_limit,
    segmentation_fault,
    shared_memory_full,
    stack_overflow,
    stopped,
    supervisor_killed,
    too_many_open_files,
    truncated_file,
    unknown,
    wrong_architecture_library,
)
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence
from holdfast.diagnosis.wording import one_line


class Cause(Protocol):
    """A module of `holdfast.diagnosis.causes`."""

    NAME: str

    def diagnose(self, evidence: Evidence) -> Diagnosis | None: ...


SPECIFIC: tuple[Cause, ...] = (
    missing_main_guard,
    cuda_after_fork,
    wrong_architecture_library,
    descriptors_closed,
    too_many_open_files,
    shared_memory_full,
    supervisor_killed,
    interrupted,
    stopped,
    over_memory_limit,
    over_memory_budget,
    memory_growth,
    copy_on_write_growth,
    out_of_memory,
    killed_by_another_process,
    compiler_trap,
    illegal_instruction,
    stack_overflow,
    truncated_file,
    handle_opened_before_fork,
    deadlock_after_fork,
)
"""These say why. Between two that are equally sure, the earlier one is the answer."""

GENERAL: tuple[Cause, ...] = (
    segmentation_fault,
    abort,
    floating_point_exception,
    hang,
    before_first_sample,
    exit_by_user_code,
    dataset_exception,
)
"""These say little more than how it ended, and so are mostly certain: a specific cause that is likely goes first."""

ALL: tuple[Cause, ...] = (*SPECIFIC, *GENERAL, unknown)

NOT_OF_THE_SAMPLE = frozenset(
    cause.NAME
    for cause in (
        before_first_sample,
        cuda_after_fork,
        interrupted,
        killed_by_another_process,
        missing_main_guard,
        out_of_memory,
        over_memory_budget,
        shared_memory_full,
        supervisor_killed,
        too_many_open_files,
        wrong_architecture_library,
    )
)
"""Names of causes that lie outside of the sample in hand: another sample would have met them as well."""

_SURENESS = (Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE, Confidence.UNKNOWN)
_ENOUGH = (Confidence.CERTAIN, Confidence.LIKELY)
_MOST_MISSING = 3


def diagnose(evidence: Evidence) -> Diagnosis:
    """The best explanation of what was seen."""
    notes: list[str] = []
    specific = _ask(SPECIFIC, evidence, notes)
    general = _ask(GENERAL, evidence, notes)
    sure = [found for found in specific if found.confidence in _ENOUGH]
    unsure = [found for found in specific if found.confidence not in _ENOUGH]
    ranked = [*_by_sureness(sure), *_by_sureness(general), *_by_sureness(unsure)]
    best = ranked[0] if ranked else _unknown(evidence, notes)
    notes[:0] = [f"also possible, {other.cause}: {other.because}" for other in unsure if other is not best]
    ruled_out = (*best.ruled_out, *_contradicted(evidence, notes))
    seen = best.evidence or (best.summary,)
    return dataclasses.replace(best, evidence=(*seen, *notes, *_not_available(evidence)), ruled_out=ruled_out)


def _ask(causes: tuple[Cause, ...], evidence: Evidence, notes: list[str]) -> list[Diagnosis]:
    """What the causes say, in their order."""
    found = []
    for cause in causes:
        try:
            diagnosis = cause.diagnose(evidence)
        except Exception as error:
            notes.append(_bug(cause, error))
        else:
            found += [diagnosis] if diagnosis is not None else []
    return found


def _contradicted(evidence: Evidence, notes: list[str]) -> list[str]:
    """Causes that words speak for, and a measurement speaks against."""
    found = []
    for cause in (too_many_open_files, over_memory_limit):
        try:
            against = cause.contradiction(evidence)
        except Exception as error:
            notes.append(_bug(cause, error))
        else:
            found += [f"{cause.NAME}: {one_line(against)}"] if against else []
    return found


def _by_sureness(found: list[Diagnosis]) -> list[Diagnosis]:
    return sorted(found, key=lambda diagnosis: _SURENESS.index(diagnosis.confidence))  # stable: the order of the table


def _unknown(evidence: Evidence, notes: list[str]) -> Diagnosis:
    try:
        return unknown.diagnose(evidence)
    except Exception as error:
        notes.append(_bug(unknown, error))
        return Diagnosis(unknown.NAME, Confidence.UNKNOWN, "was lost", "the evidence could not be read")


def _bug(cause: Cause, error: Exception) -> str:
    return one_line(
        f"a bug of holdfast: the cause {cause.NAME!r} could not be judged ({type(error).__name__}: {error})"
    )


def _not_available(evidence: Evidence) -> list[str]:
    """What would have helped to tell, and was not to be had. An exception tells enough by itself."""
    if evidence.ending is Ending.RAISED:
        return []
    return [f"not available: {one_line(what, 160)}" for what in evidence.missing[:_MOST_MISSING]]
