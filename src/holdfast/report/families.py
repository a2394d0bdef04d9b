"""Causes in a few families, so that a chart can tell them apart by shape and colour, and a page by how bad they are.

A cause that this version does not know is of the last family. A test holds the list against the causes there are.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

CRASH, KILLED, HANG, MEMORY, EXCEPTION, OTHER = "crash", "killed", "hang", "memory", "exception", "other"

TITLES = {
    CRASH: "crashed",
    KILLED: "killed or ended",
    HANG: "hung",
    MEMORY: "memory",
    EXCEPTION: "exception",
    OTHER: "other",
}
"""In the order of a legend."""

_OF_CAUSE = {
    "abort": CRASH,
    "bus error on a truncated file": CRASH,
    "compiler trap": CRASH,
    "floating point exception": CRASH,
    "illegal instruction": CRASH,
    "segmentation fault": CRASH,
    "stack overflow": CRASH,
    "descriptors closed": KILLED,
    "exit by user code": KILLED,
    "interrupted by a signal handler": KILLED,
    "killed by another process": KILLED,
    "stopped": KILLED,
    "supervisor killed": KILLED,
    "deadlock after fork": HANG,
    "hang": HANG,
    "copy-on-write growth": MEMORY,
    "memory growth": MEMORY,
    "out of memory": MEMORY,
    "over memory_budget": MEMORY,
    "over memory_limit": MEMORY,
    "shared memory full": MEMORY,
    "CUDA used after fork": EXCEPTION,
    "dataset exception": EXCEPTION,
    "failure before the first sample": EXCEPTION,
    "handle opened before fork": EXCEPTION,
    "missing main guard": EXCEPTION,
    "too many open files": EXCEPTION,
    "wrong-architecture library": EXCEPTION,
    "unknown": OTHER,
}

NOT_OF_THE_SAMPLE = frozenset(
    {
        "CUDA used after fork",
        "failure before the first sample",
        "interrupted by a signal handler",
        "killed by another process",
        "missing main guard",
        "out of memory",
        "over memory_budget",
        "shared memory full",
        "supervisor killed",
        "too many open files",
        "wrong-architecture library",
    }
)
"""As the loader judges: these do not make a sample a bad one, and no `skipped_file` remembers it for them."""

GROWTH = frozenset({"copy-on-write growth", "memory growth"})
"""Told of a worker that goes on."""


def family_of(cause: str) -> str:
    """Words after a colon, those of an exception in older records, do not count."""
    return _OF_CAUSE.get(cause.partition(":")[0], OTHER)
