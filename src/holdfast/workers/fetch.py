"""Loading one unit in a worker: the dataset's samples, one at a time, each announced on the status board.

The same order of calls as torch's own fetchers, so that whatever a dataset, a sampler or a collate function may rely on
holds. Runs in: worker process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.workers.board import PHASE, POSITION, Phase
from holdfast.workers.job import Job


class StreamEnded(Exception):
    """This worker's iterable has no more elements."""


class MapFetcher:
    """`dataset[index]` for each index, or `dataset.__getitems__` for all where the dataset has it."""

    def __init__(self, job: Job, row: memoryview) -> None:
        self._dataset = job.dataset
        self._auto_collation = job.auto_collation
        self._row = row
        self._takes_lists = bool(getattr(job.dataset, "__getitems__", None))

    def fetch(self, indices: Any) -> Any:
        """Samples of one unit, not collated. The board's position is that of the sample in hand."""
        row = self._row
        row[POSITION] = -1
        row[PHASE] = Phase.FETCH
        try:
            if not self._auto_collation:
                return self._dataset[indices]
            if self._takes_lists:
                return self._dataset.__getitems__(indices)
            return self._fetch_each(indices)
        except StopIteration as error:
            # torch would take it for the end of the epoch and drop the rest of the data without a word
            raise RuntimeError("the dataset's __getitem__ raised StopIteration") from error

    def _fetch_each(self, indices: Any) -> list[Any]:
        dataset, row = self._dataset, self._row
        samples = []
        for position, index in enumerate(indices):
            row[POSITION] = position
            samples.append(dataset[index])
        return samples


class IterableFetcher:
    """The next elements of this worker's own iterator."""

    def __init__(self, job: Job, row: memoryview) -> None:
        self._iterator: Iterator[Any] = iter(job.dataset)
        self._auto_collation = job.auto_collation
        self._drop_last = job.drop_last
        self._row = row
        self._ended = False

    def fetch(self, indices: Any) -> Any:
        row = self._row
        row[POSITION] = -1
        row[PHASE] = Phase.FETCH
        if self._ended:
            raise StreamEnded
        if self._auto_collation:
            return self._fetch_each(len(indices))
        try:
            return next(self._iterator)
        except StopIteration:
            raise StreamEnded from None

    def _fetch_each(self, count: int) -> list[Any]:
        row = self._row
        samples: list[Any] = []
        for position in range(count):
            row[POSITION] = position
            try:
                samples.append(next(self._iterator))
            except StopIteration:
                self._ended = True
                break
        if not samples or (self._drop_last and len(samples) < count):
            raise StreamEnded
        return samples


def make_fetcher(job: Job, row: memoryview) -> MapFetcher | IterableFetcher:
    return IterableFetcher(job, row) if job.is_iterable else MapFetcher(job, row)
