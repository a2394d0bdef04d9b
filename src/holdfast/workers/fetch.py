"""Loading one unit of a map-style dataset: its samples, one at a time, each announced on the status board.

The same order of calls as torch's own fetcher, so that whatever a dataset, a sampler or a collate function may rely on
holds. A sample that raises is tried again or passed over as the loader's arguments say (`attempts.py`).
Runs in: worker process; main process, without workers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

from holdfast.board_rows import PHASE, POSITION, SINCE_NS, SPAN, Phase
from holdfast.incident import bounded_repr
from holdfast.workers import rng
from holdfast.workers.attempts import Retries
from holdfast.workers.failures import capture
from holdfast.workers.job import Job
from holdfast.workers.messages import BadSample, place_of

Where = Callable[[str], str]
"""From what was being done to one line for the user: which worker, which batch."""


class MapFetcher:
    """`dataset[index]` for each index, or `dataset.__getitems__` for all where the dataset has it."""

    def __init__(self, job: Job, row: memoryview, where: Where) -> None:
        self._dataset = job.dataset
        self._auto_collation = job.auto_collation
        self._takes_lists = job.auto_collation and bool(getattr(job.dataset, "__getitems__", None))
        self._load: Callable[[Any], Any] = functools.partial(operator.getitem, job.dataset)
        if self._takes_lists:
            self._load = lambda index: job.dataset.__getitems__([index])[0]
        self._care = job.care
        self._retries = Retries(job.care, row)
        self._row = row
        self._where = where
        self.sample_seed = job.epoch.sample_seed
        self.bad: list[BadSample] = []
        self.elements = 0  # of an iterable; here never
        self.first_place = 0  # of the last unit's samples in the epoch
        self.is_timed = False  # each sample alone, from the next unit on
        self.times: list[tuple[int, int]] = []  # of the last unit, if so: position and nanoseconds

    def fetch(self, indices: Any, places: Sequence[int] = (0,), *, one_by_one: bool = False) -> Any:
        """Samples of one unit, not collated. The board's position is that of the sample in hand. Sets `bad`."""
        self.bad, self.first_place = [], places[0]
        if self.times:
            self.times = []
        self._row[PHASE] = Phase.FETCH
        if self._auto_collation:
            in_one_call = self._takes_lists and not one_by_one and self.sample_seed is None
            return self._fetch_many(indices, places) if in_one_call else self._fetch_each(indices, places)
        if isinstance(indices, list):
            return self._fetch_whole(indices, places, one_by_one=one_by_one)
        samples = self._fetch_each([indices], places)
        return samples[0] if samples else None

    def _fetch_many(self, indices: Any, places: Sequence[int]) -> Any:
        """All samples in one call of `__getitems__`."""
        self._row[POSITION], self._row[SPAN] = -1, len(indices)
        try:
            return self._dataset.__getitems__(indices)
        except Exception as raised:
            self._raise_unless_worth_a_closer_look(raised)
            failure = capture(raised, self._where("dataset.__getitems__"))._replace(phase=int(Phase.FETCH))
        samples = self._fetch_each(indices, places)  # to find out which of them it was
        if not self.bad:  # none of them, alone
            self.bad.append(BadSample(-1, 1, tuple(failure), loaded=True))
        return samples

    def _fetch_whole(self, indices: list[Any], places: Sequence[int], *, one_by_one: bool) -> Any:
        """Without batches, a list from the sampler: the dataset makes a batch of it by itself.

        To find out which of them it was, each is loaded alone, and forgotten; then the good ones together.
        """
        if one_by_one:
            self._load_alone(indices, places)
        bad = {sample.position for sample in self.bad if not sample.loaded}
        if bad and (len(bad) == len(indices) or self._care.on_error == "replace"):
            return None
        # the very list where it can be: the sampler may have given one of a class of its own
        good = [index for position, index in enumerate(indices) if position not in bad] if bad else indices
        self._row[POSITION], self._row[SPAN] = -1, len(indices)
        if self.sample_seed is not None:
            # where the first good one is: there the list would start if the bad ones had been known before
            first = next((position for position in range(len(indices)) if position not in bad), 0)
            rng.seed_sample(self.sample_seed, place_of(places, first))
        try:
            return self._dataset[good]
        except Exception as raised:
            self._raise_unless_worth_a_closer_look(raised)
            if one_by_one:  # together they fail, though none does alone
                error = _not_stop_iteration(raised)
                raise error from error.__cause__
        return self._fetch_whole(indices, places, one_by_one=True)

    def _load_alone(self, indices: list[Any], places: Sequence[int]) -> None:
        self._fetch_each([[index] for index in indices], places)

    def _raise_unless_worth_a_closer_look(self, raised: Exception) -> None:
        error = _not_stop_iteration(raised)
        if not isinstance(error, self._care.retry_on) and not self._care.may_pass_over(error):
            raise error from error.__cause__

    def _fetch_each(self, indices: Any, places: Sequence[int]) -> list[Any]:
        load, row, seed = self._load, self._row, self.sample_seed
        row[SPAN] = 1
        if self.is_timed:
            load = self._timed(load)
        elif seed is None and not self._takes_lists:
            return self._fetch_plainly(indices, places)
        samples: list[Any] = []
        for position, index in enumerate(indices):
            row[POSITION] = position
            if seed is not None:
                rng.seed_sample(seed, place_of(places, position))
            try:
                samples.append(load(index))
            except Exception as error:
                self._rescue(error, index, position, place_of(places, position), samples)
        return samples

    def _fetch_plainly(self, indices: Any, places: Sequence[int]) -> list[Any]:
        """The same with nothing but what tiny samples can bear: here every nanosecond counts."""
        dataset, row = self._dataset, self._row
        samples: list[Any] = []
        for row[POSITION], index in enumerate(indices):
            try:
                samples.append(dataset[index])
            except Exception as error:
                position = row[POSITION]
                self._rescue(error, index, position, place_of(places, position), samples)
        return samples

    def _timed(self, load: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """For samples that take so long that this is nothing."""
        row = self._row

        def load_timed(index: Any) -> Any:
            row[SINCE_NS] = began = monotonic_ns()
            sample = load(index)
            self.times.append((row[POSITION], monotonic_ns() - began))
            return sample

        return load_timed

    def _rescue(self, error: Exception, index: Any, position: int, place: int, samples: list[Any]) -> None:
        """Try a sample again, pass over it, or raise what it raised."""
        tried = self._retries.after(_not_stop_iteration(error), lambda: self._load_seeded(index, place))
        last = None if tried.error is None else _not_stop_iteration(tried.error)
        if last is None:
            samples.append(tried.value)
        elif not self._care.may_pass_over(last):
            raise last from last.__cause__
        where = self._where(f"dataset[{bounded_repr(index)}]")
        failure = capture(last or error, where)._replace(phase=int(Phase.FETCH))
        self.bad.append(BadSample(position, tried.attempts, tuple(failure), tried.error is None))

    def _load_seeded(self, index: Any, place: int) -> Any:
        if self.sample_seed is not None:
            rng.seed_sample(self.sample_seed, place)
        return self._load(index)


def _not_stop_iteration(error: Exception) -> Exception:
    """torch would take it for the end of the epoch and drop the rest of the data without a word."""
    if not isinstance(error, StopIteration):
        return error
    replacement = RuntimeError("the dataset's __getitem__ raised StopIteration")
    replacement.__cause__ = error
    return replacement
