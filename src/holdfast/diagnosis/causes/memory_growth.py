"""The worker keeps something of every sample: its memory grows steadily. It is alive.

Signs: what it keeps between two batches goes up with the samples it has loaded, and does not level off, as it would
when a cache has filled or the first samples have imported what they need.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast import words
from holdfast.diagnosis import wording
from holdfast.diagnosis.evidence import Confidence, Diagnosis, Ending, Evidence

NAME = "memory growth"


def diagnose(evidence: Evidence) -> Diagnosis | None:
    growth = evidence.growth
    if evidence.ending is not Ending.GREW or growth is None or growth.copied_bytes:
        return None
    rate, since = words.size(int(growth.bytes_per_sample)), words.size(growth.grown_bytes)
    return Diagnosis(
        cause=NAME,
        confidence=Confidence.CERTAIN,
        summary=f"grows {rate} per sample, {since} since it started",
        because=f"what it keeps between batches went up by {since} over {words.plural(growth.samples, 'sample')}, "
        f"and did not level off; the largest growth is in {wording.one_line(growth.largest_in, 300)}",
        advice=(
            "find what the dataset keeps of each sample: a cache without a bound, a list, a file that stays open",
            "HOLDFAST_GROWTH=tracemalloc   in the environment: the report then names the lines that hold it (slower)",
            "DataLoader(..., recycle_after=1000)   replace a worker after so many batches",
        ),
    )
