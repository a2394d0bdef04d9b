"""What the things of a run are called: a loader has samples, a pool has calls, a group has ranks. Pure.

`holdfast scan` has samples too, and nobody who trains with them.

Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.counted import LOADER, MAP, POOL, SPAWN
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
    trains: bool = False
    """Whether the caller has something else to do: then it is worth a word how long it waits."""


_LONGEST_FRONT = 40
_LOADER = Nouns("sample", "worker", "left out", "the training loop", trains=True)
_SCAN = Nouns("sample", "worker", "left out", "the scan")
_CALLS = Nouns("call", "worker", "failed", "the caller")
_RANKS = Nouns("rank", "rank", "failed", "the caller")
_OF_FRONT = {POOL: _CALLS, MAP: _CALLS, SPAWN: _RANKS}


def front_of(start: Entry) -> str:
    """What the user made: a loader, unless the record says otherwise."""
    return entries.text(start, "front", _LONGEST_FRONT) or LOADER


def nouns_of(start: Entry) -> Nouns:
    of_loader = _SCAN if entries.text(start, "command") == "scan" else _LOADER
    return _OF_FRONT.get(front_of(start), of_loader)
