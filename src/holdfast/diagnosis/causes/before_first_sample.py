"""A worker failed before its first sample: on an import, on unpickling the dataset, or in `worker_init_fn`.

Signs: it raised, exited or died while it was starting. What it was doing, where only the words of an exception tell
that, and an exception that was the last on its stderr, are likely.

Pure. Runs in: main process.
"""

from __future__ import annotations

import re

from holdfast.diagnosis import python_frames, signs, wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "failure before the first sample"
_STARTING = "starting"
_UNPICKLING = re.compile(
    r"Can't get (local )?(attribute|object)|UnpicklingError|cannot find .* on <module|Ran out of input"
)
_IMPORT = re.compile(r"^(ModuleNotFound|Import)Error\b")  # the type, and not a word of the message


def diagnose(evidence: Evidence) -> Diagnosis | None:
    is_end = evidence.ending in (Ending.RAISED, Ending.EXITED)
    if evidence.phase != _STARTING or not is_end:
        return None
    said = signs.exception_line(evidence) or _printed(evidence)
    is_told = (bool(said) and evidence.raised is None) or _UNPICKLING.search(said) is not None
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.LIKELY if is_told or signs.signal_of(evidence) is not None else Confidence.CERTAIN,
        summary=signs.ended(evidence),
        because=_because(evidence, said),
        where=signs.where(evidence),
        evidence=(*signs.signal_line(evidence), *signs.stack_lines(evidence)),
        advice=_advice(said),
    )


def _printed(evidence: Evidence) -> str:
    """The exception it may have died of: the last words of a process that exited with status 1."""
    return signs.last_exception_printed(evidence) if signs.died_of_exception(evidence)[1] else ""


def _because(evidence: Evidence, said: str) -> str:
    number = signs.signal_of(evidence)
    if number is not None:
        return f"{wording.signal_name(number)} ended it on an import, on unpickling the dataset, or in worker_init_fn"
    return f"{_step(evidence, said)} {'raised ' + said if said else 'ended the process'}"


def _step(evidence: Evidence, said: str) -> str:
    called = python_frames.called_by_us(signs.frames(evidence))
    if called and "init_fn" in called[-1].function:  # what the worker itself called
        return "worker_init_fn"
    if _UNPICKLING.search(said):
        return "unpickling the dataset in the worker"
    return "an import in the worker" if _IMPORT.search(said) else "starting the worker"


def _advice(said: str) -> tuple[str, ...]:
    here = "DataLoader(..., num_workers=0)   runs the same code in this process, where a debugger sees it"
    if _UNPICKLING.search(said):
        return (
            "define the dataset's classes and functions at the top level of a module that the workers can import",
            here,
        )
    if _IMPORT.search(said):
        return (
            "install the module, or add its folder to PYTHONPATH: the workers import it by its name",
            here,
        )
    first = "dataset[0], or next(iter(dataset)) of an iterable,"
    return f"call worker_init_fn(0), and {first} in this process, before the loader is made", here
