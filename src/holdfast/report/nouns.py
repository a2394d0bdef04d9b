"""What the things of a run are called: a loader has samples, a pool has calls, a group has ranks. Pure.

Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.report import entries
from holdfast.report.entries import Entry


@dataclass(frozen=True, slots=True)
class Nouns:
    """Of one front."""

    item: str
    """What is loaded or called: "sample", "call", "rank"."""
    worker: str
    lost: str
    """What becomes of an item that fails and is not raised: "left out", "failed"."""
    caller: str
    """Where an error arrives."""


_LOADER = Nouns("sample", "worker", "left out", "the training loop")
_CALLS = Nouns("call", "worker", "failed", "the caller")
_RANKS = Nouns("rank", "rank", "failed", "the caller")
_OF_FRONT = {"ProcessPoolExecutor": _CALLS, "holdfast.map": _CALLS, "holdfast.spawn": _RANKS}


def nouns_of(start: Entry) -> Nouns:
    return _OF_FRONT.get(entries.text(start, "front"), _LOADER)
