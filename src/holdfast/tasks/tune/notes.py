"""What a user should know of how it was measured, beside the numbers. Pure.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.tasks.tune.facts import Point, Setting
from holdfast.words import rate

_CHEAP_PER_S, _CHEAP_TIMES = 500, 1.2
"""Batches that the training process would make by itself, and how much more than workers: below, it is no matter."""


@dataclass(frozen=True, slots=True)
class Course:
    """How the measurement went."""

    seconds: float
    measured_batch_size: int
    untried: Sequence[int] = ()
    """Numbers of workers for which there was no time."""
    loads_of_each: float | None = None
    """How often every sample was loaded; None where nobody knows how many there are."""


def notes(setting: Setting, curve: Sequence[Point], chosen: int, course: Course) -> list[str]:
    return [*_of_curve(curve, chosen, course), *_of_course(setting, course)]


def _of_curve(curve: Sequence[Point], chosen: int, course: Course) -> Iterator[str]:
    points = [point for point in curve if not point.is_computed]
    best = max(points, key=lambda point: point.batches_per_s)
    for alone in curve:
        if alone.is_computed and alone.batches_per_s > max(_CHEAP_PER_S, _CHEAP_TIMES * best.batches_per_s):
            yield (
                f"Loading in the training process, with num_workers=0, would give {rate(alone.batches_per_s)} "
                f"batches/s, more than any workers: samples are that cheap. It does not go on beside the step, and a "
                f"sample that crashes or hangs ends the training."
            )
    if course.untried:
        yield f"There was no time for {', '.join(map(str, course.untried))} workers: more --seconds try them."
    elif len(points) > 1 and points[-1] is best and best.num_workers == chosen:
        yield f"{chosen} workers are the most that were tried: --max-workers tries more."


def _of_course(setting: Setting, course: Course) -> Iterator[str]:
    if course.measured_batch_size < setting.batch_size:
        yield (
            f"Measured with batches of {course.measured_batch_size}, counted as batches of {setting.batch_size}: whole "
            f"ones take too long for {course.seconds:g} s. More --seconds are more exact."
        )
    if course.loads_of_each is not None and course.loads_of_each >= 2:
        yield (
            f"Every sample was loaded about {course.loads_of_each:.0f} times: files came from memory, as after the "
            f"first epoch where there is room for all of them."
        )
