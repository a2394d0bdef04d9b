"""A few samples can be loaded: the first, the last, and some between them.

Pure. Runs in: main process.
"""

from __future__ import annotations

import shlex

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.tasks.examine.seen import Lost, Made, Raised, Seen, Taken
from holdfast.words import plural

NAME = "samples"


def judge(seen: Seen) -> list[Finding]:
    if not isinstance(seen.made, Made):
        return []
    if not seen.taken:
        return [_none(seen)] if seen.made.is_iterable else []  # a length of 0 is told of as such
    bad = [_finding(seen, one) for one in seen.taken if not _is_good(one)]
    if bad:
        return bad
    return [ok(NAME, f"{plural(len(seen.taken), 'sample')} loaded, each {seen.samples[0].what}")]


def _none(seen: Seen) -> Finding:
    return Finding(
        NAME,
        Level.PROBLEM,
        f"{seen.target} gives no sample",
        evidence=("the first next(iter(dataset)) raises StopIteration",),
        consequence="a loader gives no batch",
        remedy=("ls -l  # are the files there that it reads its samples from?",),
    )


def _is_good(one: Taken) -> bool:
    return not isinstance(one.result, Raised | Lost)


def _finding(seen: Seen, one: Taken) -> Finding:
    scan = f"holdfast scan {shlex.quote(seen.target)}  # finds all that are bad, and writes them down"
    go_on = 'DataLoader(..., on_error="skip")  # go on without them'
    if isinstance(one.result, Raised):
        return Finding(
            NAME,
            Level.PROBLEM,
            f"sample {one.index} raises {one.result.what}",
            evidence=(one.result.where or one.result.what,),
            consequence="the epoch ends there, unless the loader is told to go on",
            remedy=(scan, go_on),
        )
    lost = one.result
    assert isinstance(lost, Lost)
    return Finding(
        NAME,
        Level.PROBLEM,
        f"sample {one.index}: the process {lost.summary}",
        evidence=lost.lines,
        consequence="it costs a worker, each time it is tried",
        remedy=(scan, 'DataLoader(..., on_error="skip", sample_timeout=30)  # go on without them')
        if lost.is_hang
        else (scan, go_on),
    )
