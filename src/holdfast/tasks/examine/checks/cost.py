"""The time and the memory that one sample takes.

Pure. Runs in: main process.
"""

from __future__ import annotations

import shlex
import statistics

from holdfast.doctor.finding import Finding, Level, ok
from holdfast.tasks.examine.seen import Made, Sample, Seen, duration
from holdfast.words import size

NAME = "sample time and memory"
_SLOW_S = 1.0
_LARGE_BYTES = 1 << 30


def judge(seen: Seen) -> list[Finding]:
    if not isinstance(seen.made, Made) or not seen.samples:
        return []
    found = [*_slow(seen), *_large(seen.samples)]
    return found or [ok(NAME, _summary(seen.samples))]


def _summary(samples: list[Sample]) -> str:
    """The first one bears what is done once: files that are opened, libraries that are loaded."""
    times = [sample.again_s for sample in samples]
    peaks = [sample.peak_bytes for sample in samples if sample.peak_bytes is not None]
    peak = f"; {size(max(peaks))} of memory at most to load one" if peaks else ""
    first = samples[0]
    return (
        f"{duration(statistics.median(times))}, the first {duration(first.seconds)}; "
        f"{size(max(sample.nbytes for sample in samples))} each{peak}"
    )


def _slow(seen: Seen) -> list[Finding]:
    times = [sample.again_s for sample in seen.samples]
    if statistics.median(times) < _SLOW_S:
        return []
    return [
        Finding(
            NAME,
            Level.NOTE,
            f"a sample takes {duration(statistics.median(times))}",
            evidence=(_summary(seen.samples),),
            consequence="the training loop waits, unless many workers load at once",
            remedy=(f"holdfast tune {shlex.quote(seen.target)}  # how many workers it takes",),
        )
    ]


def _large(samples: list[Sample]) -> list[Finding]:
    peak = max((sample.peak_bytes or 0 for sample in samples), default=0)
    if peak < _LARGE_BYTES:
        return []
    return [
        Finding(
            NAME,
            Level.WARNING,
            f"loading one sample takes {size(peak)} of memory",
            evidence=(_summary(samples),),
            consequence="every worker takes as much, at the same time: the kernel may kill one",
            remedy=('DataLoader(..., memory_budget="80%")  # as many at once as fit',),
        )
    ]
