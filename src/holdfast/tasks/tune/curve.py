"""Batches per second with 1, 2, 4, ... workers: real loaders, each for its share of the time.

First all numbers upwards, until more workers gain nothing any more; then, in the time that is left, the same downwards
and upwards again. So what else the machine does for a while hits all of them, and not one.

Runs in: main process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psutil

import holdfast
from holdfast.tasks.tune import rates
from holdfast.tasks.tune.facts import Point
from holdfast.tasks.tune.guarded import Loaders

FIRST_PASS_SHARE = 0.6
MOST_ROUNDS = 3
_LEAST_WINDOW_SHARE = 0.25
"""Of a share, is left for counting, however long the workers take to start."""
_LEAST_SHARE_S = 0.25
_LEAST_TRIED = 2
"""Numbers of workers: of one there is no curve, even if that takes longer than was allowed."""
_MOST_WEIGHED = 8
"""Workers whose memory is read: it takes milliseconds each."""


@dataclass(frozen=True, slots=True)
class Round:
    """One loader."""

    batches_per_s: float
    batches: int
    first_batch_s: float
    worker_bytes: int | None
    is_disturbed: bool
    """By samples that failed meanwhile: workers were replaced, or waited for."""


@dataclass(slots=True)
class Curve:
    """What was measured so far is kept, also where it ends by an exception."""

    loaders: Loaders
    dataset: Any
    batch_size: int
    measured_batch_size: int
    collate: Callable[[list[Any]], Any] | None
    on_progress: Callable[[int, float | None], None]
    """Told of the number of workers with every batch and, once it is known, of the rate."""
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    untried: tuple[int, ...] = ()
    """Numbers of workers for which there was no time."""
    error: Exception | None = None
    """What ended a loader early, the first time."""

    def run(self, counts: list[int], deadline_s: float) -> None:
        self._first_pass(counts, deadline_s)
        for number in range(1, MOST_ROUNDS):
            upwards = sorted(self.rounds)
            self._pass_again(upwards if number % 2 == 0 else upwards[::-1], deadline_s, MOST_ROUNDS - number)

    def points(self) -> list[Point]:
        return [_point(count, rounds) for count, rounds in sorted(self.rounds.items())]

    def _first_pass(self, counts: list[int], deadline_s: float) -> None:
        share_s = max(_LEAST_SHARE_S, FIRST_PASS_SHARE * (deadline_s - time.monotonic()) / len(counts))
        for number, count in enumerate(counts):
            if number >= _LEAST_TRIED and time.monotonic() >= deadline_s:
                self.untried = tuple(counts[number:])
                return
            if not self._measure(count, share_s):
                return
            if self.rounds[count][0].is_disturbed and time.monotonic() + share_s < deadline_s:
                self._measure(count, share_s)  # what failed is known now, and not drawn again
            if rates.has_flattened([p.batches_per_s for p in self.points()]):
                return

    def _pass_again(self, counts: Iterable[int], deadline_s: float, passes_left: int) -> None:
        counts = list(counts)
        for number, count in enumerate(counts):
            left_s = deadline_s - time.monotonic()
            share_s = left_s / (passes_left * len(counts) - number)
            starts_in_s = self.rounds[count][0].first_batch_s
            if share_s >= max(_LEAST_SHARE_S, 2 * starts_in_s):
                self._measure(count, share_s)

    def _measure(self, count: int, share_s: float) -> bool:
        """Whether a rate came of it."""
        self.on_progress(count, None)
        found = self._round(count, share_s)
        if found is None:
            return False
        self.rounds.setdefault(count, []).append(found)
        self.on_progress(count, found.batches_per_s)
        return True

    def _round(self, count: int, share_s: float) -> Round | None:
        start = time.monotonic()
        end = start + share_s
        arrivals: list[float] = []
        failed_before = len(self.loaders.order.failed)
        with self.loaders.open(
            self.dataset, batch_size=self.measured_batch_size, num_workers=count, collate=self.collate, share_s=share_s
        ) as loader:
            try:
                for _ in self.loaders.batches(loader):
                    now = time.monotonic()
                    arrivals.append(now - start)
                    self.on_progress(count, None)
                    if len(arrivals) == 1:
                        end = max(end, now + _LEAST_WINDOW_SHARE * share_s)
                    has_enough = rates.has_turns(len(arrivals), count) or now >= end + share_s
                    if now >= end and has_enough:
                        break
            except Exception as error:  # what came before it counts; the samples that failed are noted elsewhere
                self.error = self.error or error
            rate = rates.rate(arrivals, count)
            filled, weight = self._filled(loader), _worker_bytes(count)
        if rate is None:
            return None
        is_disturbed = len(self.loaders.order.failed) > failed_before
        return Round(rate * filled / self.batch_size, len(arrivals), arrivals[0], weight, is_disturbed)

    def _filled(self, loader: holdfast.DataLoader[Any]) -> float:
        """Samples in a batch: the last one of a stream may be smaller, and so may one in which samples failed."""
        stats = loader.stats()
        return stats.samples / stats.batches if stats.batches else self.measured_batch_size


def _point(count: int, rounds: list[Round]) -> Point:
    clean = [each for each in rounds if not each.is_disturbed]
    per_s = [each.batches_per_s for each in clean or rounds]
    weights = [each.worker_bytes for each in rounds if each.worker_bytes is not None]
    return Point(
        count,
        median(per_s),
        min(per_s),
        max(per_s),
        sum(each.batches for each in clean or rounds),
        len(clean or rounds),
        rounds[0].first_batch_s,
        max(weights, default=None),
        is_disturbed=not clean,
    )


def _worker_bytes(count: int) -> int | None:
    """Of the processes started last, which are the workers."""
    try:
        children = sorted(psutil.Process().children(recursive=True), key=psutil.Process.create_time)
        own = [int(child.memory_full_info().uss) for child in children[-min(count, _MOST_WEIGHED) :]]
    except (psutil.Error, OSError):  # one has just ended
        return None
    return sum(own) // len(own) if own else None
