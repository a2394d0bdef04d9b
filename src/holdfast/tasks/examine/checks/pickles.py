"""The dataset pickles, as it must for workers that are new interpreters; and what attribute does not.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.tasks.examine.seen import Lost, Made, Pickled, Seen
from holdfast.words import size

NAME = "pickling"
_LARGE_BYTES = 256 << 20


def judge(seen: Seen) -> list[Finding]:
    if isinstance(seen.pickled, Lost):
        return [_lost(seen, seen.pickled)]
    if seen.pickled is None:
        return []
    if seen.pickled.nbytes is None:
        return [_does_not(seen, seen.pickled)]
    if seen.pickled.nbytes > _LARGE_BYTES:
        return [_large(seen, seen.pickled.nbytes)]
    return [ok(NAME, f"{size(seen.pickled.nbytes)}")]


def _level(seen: Seen) -> Level:
    """Under fork nothing is sent: it matters on another platform, or with another Python."""
    return Level.WARNING if seen.start_method == "fork" else Level.PROBLEM


def _when(seen: Seen) -> str:
    if seen.start_method == "fork":
        return "it works with fork only: not under spawn, on macOS or Windows, nor by default from Python 3.14 on"
    return f"workers are started by {seen.start_method}: none can be"


def _does_not(seen: Seen, pickled: Pickled) -> Finding:
    return Finding(
        NAME,
        _level(seen),
        f"the dataset does not pickle, because of {pickled.path or 'itself'}",
        evidence=(pickled.why,),
        consequence=_when(seen),
        remedy=(
            f"{_attribute(pickled.path)} = None  # in __init__; open or make it on first use in __getitem__",
            *_fork(seen),
        ),
    )


def _fork(seen: Seen) -> tuple[str, ...]:
    """Another way out, for a dataset that bears it."""
    bears_it = isinstance(seen.made, Made) and not seen.made.opened and not seen.made.python_threads
    return ('DataLoader(..., multiprocessing_context="fork")  # sends nothing',) if bears_it else ()


def _attribute(path: str) -> str:
    return f"self{path.removeprefix('dataset')}" if path.startswith("dataset.") else "self.handle"


def _lost(seen: Seen, lost: Lost) -> Finding:
    return Finding(
        NAME,
        _level(seen),
        f"pickling the dataset: the process {lost.summary}",
        evidence=lost.lines,
        consequence=_when(seen),
        remedy=_fork(seen) or ("self.data = holdfast.share(self.data)  # in __init__: what is large is sent once",),
    )


def _large(seen: Seen, nbytes: int) -> Finding:
    return Finding(
        NAME,
        Level.NOTE if seen.start_method == "fork" else Level.WARNING,
        f"the pickled dataset has {size(nbytes)}",
        evidence=("all of it is sent to each worker that is a new interpreter",),
        consequence="workers start slowly, and each has a copy of its own in memory",
        remedy=("self.data = holdfast.share(self.data)  # in __init__: one copy for all workers",),
    )
