"""A deadlock after fork: the worker waits for a lock that a thread of the main process held when the worker was forked.

Signs: a hang in a worker started by fork, and the innermost frame waits for a lock, a queue, a thread or an OpenMP
team. Only one thread lives on in a forked process, so nobody is left to wake it. Where the worker has threads of its
own, of Python or native, one of them may be what it waits for: then it is possible only. Locks and queues of
multiprocessing are no sign: they are shared with processes that live.

Pure. Runs in: main process.
"""

from __future__ import annotations

import re

from holdfast import words
from holdfast.diagnosis import python_frames, signs
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence
from holdfast.diagnosis.python_frames import PythonFrame

NAME = "deadlock after fork"
_WAITING_FILES = re.compile(r"[/\\](threading|queue|_base|thread)\.py$|[/\\]logging[/\\](__init__|handlers)\.py$")
_WAITING_FUNCTIONS = re.compile(
    r"^(acquire|wait|wait_for|get|put|join|_wait_for_tstate_lock|__enter__|result|handle|flush|emit|createLock)$"
)
_WAITING_SOURCE = re.compile(r"\.acquire\(|\bwith\b.*(?:\b|_)r?lock\b|\.wait\(", re.IGNORECASE)
_BETWEEN_PROCESSES = re.compile(r"(?:^|[/\\])multiprocessing[/\\]\w+\.py$")
_OPENMP = re.compile(r"\b(libg?omp|libiomp\d*)\b|\b(gomp|omp|__kmp[a-z]*)_", re.IGNORECASE)
_LOCK = re.compile(r"\bfutex|lll_lock|pthread_(mutex|cond|rwlock)|sem_(timed)?wait|PyThread_acquire_lock|acquire_timed")


def diagnose(evidence: Evidence) -> Diagnosis | None:
    if evidence.ending is not Ending.HUNG or not signs.is_forked(evidence):
        return None
    what = _waits_for(evidence)
    if not what:
        return None
    others = max(python_frames.other_threads(evidence.python_stack), (evidence.threads or 1) - 1)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.POSSIBLE if others else Confidence.LIKELY,
        summary=f"{signs.hung(evidence)}, waiting for {what}",
        because=_because(others),
        where=signs.where(evidence),
        evidence=(*signs.stack_lines(evidence), *signs.native_lines(evidence)),
        advice=_advice(what),
    )


def _because(others: int) -> str:
    alone = "only one thread lives on in a forked process: what could end this wait"
    if not others:
        return f"{alone} is not there"
    return f"{alone} may not be there, or be of its own {words.plural(others, 'other thread')}"


def _waits_for(evidence: Evidence) -> str:
    """What it waits for, in words; "" where it does not look like waiting."""
    top = "\n".join(signs.native_frames(evidence)[:12])
    if _OPENMP.search(top):
        return "an OpenMP team"
    frames = signs.frames_seen(evidence)
    if frames and _BETWEEN_PROCESSES.search(frames[0].file):
        return ""
    if frames and _is_waiting(frames[0]):
        return "a queue" if any("queue" in frame.file for frame in frames[:2]) else "a lock"
    return "a lock" if _LOCK.search(top) or "futex" in evidence.waiting_in else ""


def _is_waiting(frame: PythonFrame) -> bool:
    in_library = _WAITING_FILES.search(frame.file) and _WAITING_FUNCTIONS.match(frame.function.split(".")[-1])
    return bool(in_library) or bool(_WAITING_SOURCE.search(frame.source))


def _advice(what: str) -> tuple[str, ...]:
    spawn = 'DataLoader(..., multiprocessing_context="forkserver")   workers that are no copy of a process with threads'
    if what == "an OpenMP team":
        return "torch.set_num_threads(1)   in worker_init_fn, and before the loader is made", spawn
    return (
        spawn,
        "make locks, queues, thread pools and log handlers in worker_init_fn or on first use, not before the loader",
    )
