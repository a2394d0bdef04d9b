"""Who waits for whom: the share of the time that training waited for a batch, and what that means, in words.

Pure. Runs in: wherever records are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.records.live import LiveRun
from holdfast.report import entries

LOADER, SOMETIMES, TRAINING, UNKNOWN = "loader", "sometimes", "training", "unknown"

_MOSTLY, _HARDLY = 0.5, 0.1
_IN_PROCESS = "num_workers=0: the training process loads its samples itself"
_FROM_RECORD = "no epoch under way that can be seen: this is what the record said last"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Over the last `window_s` seconds; of a run that is over, over all of it."""

    share: float | None
    """Of the time, that `next()` waited for a batch. None: not known."""
    window_s: float | None
    bottleneck: str
    """LOADER: training waits for it. TRAINING: the loader keeps up. SOMETIMES: in between. UNKNOWN."""
    words: str


def waiting(older: LiveRun, newer: LiveRun, age_s: float | None, *, trains: bool) -> Waiting:
    """From two looks at a run, which may be the same; `age_s` is how long it lasted, for one that is over.

    Where nobody `trains` nothing is said: whoever waits for a call, or for a scan, wants to.
    """
    if not trains:
        return Waiting(None, None, UNKNOWN, "")
    if not newer.run.is_alive:
        return _over_all(newer, age_s)
    window_s = newer.at_s - older.at_s
    if not newer.is_fresh:
        return Waiting(None, None, UNKNOWN, _IN_PROCESS if newer.run.start.get("num_workers") == 0 else _FROM_RECORD)
    if window_s <= 0:
        return Waiting(None, None, UNKNOWN, "looking for a moment: who waits for whom is not known yet")
    share = _bounded((newer.waited_s - older.waited_s) / window_s)
    return Waiting(share, window_s, _who(share), _words(share, newer.batches - older.batches))


def _over_all(newer: LiveRun, age_s: float | None) -> Waiting:
    waited_s = entries.as_number((newer.run.end or {}).get("waited_s", newer.waited_s))
    if not age_s or waited_s is None:
        return Waiting(None, None, UNKNOWN, "")
    share = _bounded(waited_s / age_s)
    return Waiting(share, age_s, _who(share), "")


def _bounded(share: float) -> float:
    """A wait is counted when it ends, so that more than the window may be counted in it."""
    return min(max(share, 0.0), 1.0)


def _who(share: float) -> str:
    return LOADER if share >= _MOSTLY else SOMETIMES if share >= _HARDLY else TRAINING


def _words(share: float, batches: int) -> str:
    if batches <= 0:
        return "no batch came" if share >= _MOSTLY else "no batch was asked for"
    return {
        LOADER: "the loader is the bottleneck",
        SOMETIMES: "the loader is too slow at times",
        TRAINING: "the loader keeps up",
    }[_who(share)]
