"""A sample is the same when it is loaded twice; where it is random, it is so by the generators that loaders seed.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.doctor.finding import Finding, Level, ok, some_of
from holdfast.tasks.examine.seen import Made, Sample, Seen
from holdfast.words import plural

NAME = "same sample twice"


def judge(seen: Seen) -> list[Finding]:
    if not isinstance(seen.made, Made) or not seen.samples:
        return []
    unseeded = [sample for sample in seen.samples if sample.differs_seeded]
    random = [sample for sample in seen.samples if sample.differs_at]
    if unseeded:
        return [_not_by_seed(seen.made, unseeded)]
    if random:
        return [_by_seed(random)]
    return [ok(NAME, f"{plural(len(seen.samples), 'sample')}, each loaded twice: equal")]


def _lines(samples: list[Sample]) -> tuple[str, ...]:
    places = (one.differs_at.replace("sample", f"dataset[{one.index}]", 1) for one in samples)
    return some_of((f"{place} is another one the second time" for place in places), 3)


def _by_seed(samples: list[Sample]) -> Finding:
    return Finding(
        NAME,
        Level.NOTE,
        "samples are random, by the generators of random, numpy or torch: equal where their seeds are",
        evidence=_lines(samples),
        consequence="with another num_workers, or after a resume, augmentation differs",
        remedy=('DataLoader(..., rng="sample")  # random numbers by seed, epoch and position alone',),
    )


def _not_by_seed(made: Made, samples: list[Sample]) -> Finding:
    own = tuple(f"{path} is a random generator of its own" for path in made.generators)
    return Finding(
        NAME,
        Level.WARNING,
        "samples differ each time they are loaded, whatever is seeded",
        evidence=(*_lines(samples), *own),
        consequence="forked workers start with the same generator, and draw the same; no run can be repeated"
        if own
        else "a sample that is retried or replayed is another one; no run can be repeated",
        remedy=(
            f"{made.generators[0].replace('dataset', 'self', 1)} = np.random.default_rng(torch.initial_seed())"
            f"  # on first use in __getitem__"
            if own
            else "torch.rand(()).item()  # in place of time, os.urandom, or what changes with every call",
        ),
    )
