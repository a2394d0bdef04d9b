"""Samples, one at a time, in one guarded worker: how long each takes, how large it is, what the worker has meanwhile.

Of an iterable dataset in two workers: whether they give the same elements is seen at once.

Runs in: main process.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from holdfast.tasks.tune.facts import Samples, Spread
from holdfast.tasks.tune.guarded import Loaders
from holdfast.tasks.tune.watched import COMPARED, WatchedElements, WatchedSamples, Weighed, pack, unpack

MOST = 20_000
"""Samples: more say nothing new."""
_LEAST_COMPARED = 2
_LEAST_WINDOW_SHARE = 0.5


class CollateFailed(Exception):
    """The samples do not make a batch. The text is that of the exception."""


class Sampling:
    """What was weighed so far is kept, also where it ends by an exception."""

    def __init__(self, loaders: Loaders, batch_size: int, collate: Callable[[list[Any]], Any] | None) -> None:
        self._loaders = loaders
        self._batch_size, self._collate = batch_size, collate
        self.weighed: list[Weighed] = []

    def run(self, dataset: Any, share_s: float, on_sample: Callable[[Sequence[Weighed]], None]) -> None:
        """For so long. CollateFailed, and what a loader raises."""
        is_iterable = self._loaders.order.length is None
        watch = WatchedElements if is_iterable else WatchedSamples
        deadline_s = time.monotonic() + share_s
        watched = watch(dataset, self._batch_size, self._collate)
        workers = 2 if is_iterable else 1
        with self._loaders.open(watched, batch_size=1, num_workers=workers, collate=pack, share_s=share_s) as loader:
            for batch in self._loaders.batches(loader):
                if not self.weighed:  # however long the worker took to start
                    deadline_s = max(deadline_s, time.monotonic() + _LEAST_WINDOW_SHARE * share_s)
                self._take(unpack(batch))
                on_sample(self.weighed)
                if time.monotonic() >= deadline_s or len(self.weighed) >= MOST:
                    return

    def _take(self, weighed: list[Weighed]) -> None:
        self.weighed += weighed
        for each in weighed:
            if each.collate_error:
                raise CollateFailed(each.collate_error)


def summed_up(weighed: Sequence[Weighed], batch_size: int) -> Samples:
    """At least one is needed. Where there was no whole batch, its memory is reckoned from that of the samples."""
    steady = [each for each in weighed if not each.is_first] or weighed
    times = [each.seconds for each in steady]
    batches = [each.batch_bytes for each in weighed if each.batch_bytes is not None]
    collates = [each.collate_s for each in weighed if each.collate_s is not None]
    sizes = Spread.of([each.nbytes for each in weighed])
    wall_s, busy_s = sum(times), sum(each.busy_s for each in steady)
    return Samples(
        count=len(weighed),
        seconds=Spread.of(times),
        mean_s=fmean(times),
        first_s=max((each.seconds for each in weighed if each.is_first), default=0.0),
        waiting_share=min(1.0, max(0.0, 1 - busy_s / wall_s)) if wall_s > 0 else 0.0,
        sample_bytes=sizes,
        batch_bytes=max(batches, default=None),
        collate_s=fmean(collates) if collates else None,
        peak_bytes=_peak(weighed, sizes, batch_size, has_batch=bool(batches)),
        start_bytes=max((each.start_bytes for each in weighed if each.start_bytes is not None), default=None),
    )


def _peak(weighed: Sequence[Weighed], sizes: Spread, batch_size: int, *, has_batch: bool) -> int | None:
    seen = max((each.peak_bytes for each in weighed if each.peak_bytes is not None), default=None)
    if seen is None or has_batch:
        return seen
    return seen + int(2 * batch_size * sizes.max)  # the samples, and the batch that they would be


def repeats(weighed: Sequence[Weighed]) -> bool:
    """Whether two workers of an iterable dataset began with the same elements, and those were not all alike."""
    streams: defaultdict[int, list[str]] = defaultdict(list)
    for each in weighed:
        if each.digest and len(streams[each.stream]) < COMPARED:
            streams[each.stream].append(each.digest)
    if len(streams) < 2:
        return False
    length = min(map(len, streams.values()))
    beginnings = {tuple(digests[:length]) for digests in streams.values()}
    return len(beginnings) == 1 and len(set(beginnings.pop())) >= _LEAST_COMPARED
