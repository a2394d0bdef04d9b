"""Loaders to measure with: whatever a sample does, the next one comes, or the measurement ends in time.

- A sample that fails is passed over, noted, and not drawn again. Past so many of them a loader stops.
- Every wait has an end: a sample has `sample_timeout`, a batch `timeout`, and the indices end at the deadline.
- Indices come in one random order through all loaders: so each measures samples that the last one has not loaded, as
  long as there are any, and none measures what only the first part of a dataset is like.

Runs in: main process.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import holdfast
from holdfast.tasks.tune.facts import Failed

MOST_FAILED = 20
_LONGEST_START_S = 30.0
"""New interpreters import torch first, and the machine may be busy."""
_SHUFFLED = 1_000_000
"""Of more samples than that the indices are drawn, and not shuffled."""
_CROWDED = (r"This DataLoader will create \d+ worker processes", r"\d+ workers .*want \d+ CPUs")


@dataclass(slots=True)
class Order:
    """The indices, in an order without end. `length` is None of an iterable dataset, which has none."""

    length: int | None
    failed: list[Failed] = field(default_factory=list)
    drawn: int = 0
    _bad: set[Any] = field(default_factory=set)
    _indices: Iterator[int] | None = None

    def sampler(self, deadline_s: float) -> Iterator[int] | None:
        """For one loader, which takes up where the last one left off."""
        if self.length is None:
            return None
        self._indices = self._indices or _endless(self.length)
        return self._until(self._indices, deadline_s)

    def _until(self, indices: Iterator[int], deadline_s: float) -> Iterator[int]:
        for index in indices:
            if time.monotonic() >= deadline_s or len(self._bad) == self.length:
                return
            if index not in self._bad:
                self.drawn += 1
                yield index

    def note_failed(self, loader: holdfast.DataLoader[Any]) -> None:
        for skipped in loader.skipped_samples:
            if skipped.index in self._bad:
                continue
            self._bad.add(skipped.index)
            index = skipped.index if isinstance(skipped.index, int) else _element(skipped.index)
            self.failed.append(Failed(index, skipped.reason))


def _endless(length: int) -> Iterator[int]:
    generator = random.Random(0)
    if length > _SHUFFLED:
        while True:
            yield generator.randrange(length)
    indices = list(range(length))
    while True:
        generator.shuffle(indices)
        yield from indices


def _element(index: Any) -> str:
    """Of an iterable dataset: which worker's stream, and where in it."""
    if isinstance(index, tuple) and len(index) == 2:
        return f"element {index[1]} of worker {index[0]}"
    return repr(index)[:200]


@dataclass(frozen=True, slots=True)
class Loaders:
    """All that the loaders of one call of tune have in common."""

    order: Order
    start_method: str | None
    sample_timeout_s: float

    @contextmanager
    def open(
        self,
        dataset: Any,
        *,
        batch_size: int,
        num_workers: int,
        collate: Callable[[list[Any]], Any] | None,
        share_s: float,
    ) -> Iterator[holdfast.DataLoader[Any]]:
        """A loader with indices without end, nearly: they stop when it should have been closed long ago."""
        longest_s = _LONGEST_START_S + share_s + self.sample_timeout_s
        with warnings.catch_warnings():
            for message in _CROWDED:  # more workers than CPUs are what is to be measured
                warnings.filterwarnings("ignore", message)
            loader: holdfast.DataLoader[Any] = holdfast.DataLoader(
                dataset,
                batch_size=batch_size,
                sampler=self.order.sampler(time.monotonic() + longest_s),
                num_workers=num_workers,
                collate_fn=collate,
                timeout=longest_s,
                multiprocessing_context=self.start_method,
                persistent_workers=self.order.length is None,  # a stream that ends is begun again
                on_error="skip",
                max_retries=0,
                max_skipped=MOST_FAILED,
                sample_timeout=self.sample_timeout_s,
                record=False,
            )._for_command()
            try:
                with loader:
                    yield loader
            finally:
                self.order.note_failed(loader)

    def batches(self, loader: holdfast.DataLoader[Any]) -> Iterator[Any]:
        """Until the loader is closed; a stream that ends is begun again. Nothing where there is nothing at all."""
        while True:
            came = False
            for batch in loader:
                came = True
                yield batch
            if not came or self.order.length is not None:
                return
