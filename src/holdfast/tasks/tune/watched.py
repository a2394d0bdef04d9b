"""The user's dataset with each sample timed and weighed: what leaves the worker is the measurement, not the sample.

The worker keeps samples until they are a batch, and collates that, as a loader would have it do: so its memory is that
of a worker with a batch in hand, while every sample is known at once and by itself.

Runs in: worker process (and is made in the main process).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import psutil
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from holdfast.tasks.tune import footprint


class Weighed(NamedTuple):
    """One sample. Memory is private, in bytes, beyond the start of its worker; None where that cannot be known."""

    stream: int
    seconds: float
    busy_s: float
    """In which it had a CPU, or would have had one if others had not had them all: the rest is waiting."""
    nbytes: int
    is_first: bool
    """Of its worker."""
    peak_bytes: int | None
    start_bytes: int | None
    digest: str = ""
    """Of an element of an iterable, at the beginning: to see whether workers have the same."""
    batch_bytes: int | None = None
    """This sample filled a batch, which was collated."""
    collate_s: float | None = None
    collate_error: str = ""


def pack(weighed: list[Weighed]) -> bytes:
    """The collate function of the measuring loader."""
    return pickle.dumps([tuple(each) for each in weighed])


def unpack(batch: bytes) -> list[Weighed]:
    return [Weighed(*each) for each in pickle.loads(batch)]


class _Scale:
    """Of one worker, and made there."""

    def __init__(self, batch_size: int, collate: Callable[[list[Any]], Any] | None) -> None:
        self._batch_size, self._collate = batch_size, collate or default_collate
        self._in_hand: list[Any] = []
        self._is_first = True
        self._own_bytes = _own_bytes()
        self._start = footprint.read()
        info = get_worker_info()
        self._stream = 0 if info is None else info.id

    def weigh(self, load: Callable[[], Any], *, digests: bool = False) -> Weighed:
        footprint.forget_peak()
        busy, start = _busy_s(), time.perf_counter()
        sample = load()
        took_s, busy_s = time.perf_counter() - start, _busy_s() - busy
        is_first, self._is_first = self._is_first, False
        weighed = Weighed(
            self._stream, took_s, busy_s, footprint.nbytes_of(sample), is_first, self._peak(), self._own_bytes
        )
        if digests:
            weighed = weighed._replace(digest=_digest(sample))
        self._in_hand.append(sample)
        return weighed if len(self._in_hand) < self._batch_size else self._collated(weighed)

    def _collated(self, weighed: Weighed) -> Weighed:
        samples, self._in_hand = self._in_hand, []
        start = time.perf_counter()
        try:
            batch = self._collate(samples)
        except Exception as error:  # it is no fault of the last sample's
            return weighed._replace(collate_error=f"{type(error).__name__}: {error}"[:500])
        took_s = time.perf_counter() - start
        return weighed._replace(batch_bytes=footprint.nbytes_of(batch), collate_s=took_s, peak_bytes=self._peak())

    def _peak(self) -> int | None:
        reading = footprint.read()
        if reading is None or self._start is None:
            return None
        grown = reading.data_bytes - self._start.data_bytes  # a limit counts also what was never touched
        return max(0, reading.peak_bytes - self._start.now_bytes, grown)


def _busy_s() -> float:
    """The kernel counts how long a thread was ready to run and did not; elsewhere that is taken for waiting."""
    try:
        with open("/proc/self/schedstat", "rb") as file:  # noqa: PTH123  (twice per sample)
            return time.process_time() + int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return time.process_time()


def _own_bytes() -> int | None:
    try:
        return int(psutil.Process().memory_full_info().uss)
    except (psutil.Error, OSError):
        return None


def _digest(sample: Any) -> str:
    try:
        return blake2b(pickle.dumps(sample), digest_size=16).hexdigest()
    except Exception:  # what cannot be pickled is not compared
        return ""


class WatchedSamples(Dataset[Weighed]):
    """Of a dataset with indices. One sample is one call, also where it can load many at once."""

    def __init__(self, dataset: Any, batch_size: int, collate: Callable[[list[Any]], Any] | None) -> None:
        self.dataset = dataset
        self._arguments = (batch_size, collate)
        self._scale: _Scale | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Weighed:
        self._scale = self._scale or _Scale(*self._arguments)
        if getattr(self.dataset, "__getitems__", None):  # a loader would call that
            return self._scale.weigh(lambda: self.dataset.__getitems__([index])[0])
        return self._scale.weigh(lambda: self.dataset[index])


class WatchedElements(IterableDataset[Weighed]):
    """Of an iterable dataset."""

    def __init__(self, dataset: Any, batch_size: int, collate: Callable[[list[Any]], Any] | None) -> None:
        self.dataset = dataset
        self._arguments = (batch_size, collate)

    def __iter__(self) -> Iterator[Weighed]:
        return _Elements(iter(self.dataset), _Scale(*self._arguments))


class _Elements:
    """Of one worker's stream. A class and no generator: that would end with the first element that raises."""

    def __init__(self, elements: Iterator[Any], scale: _Scale) -> None:
        self._elements, self._scale = elements, scale
        self._count = 0

    def __iter__(self) -> Iterator[Weighed]:
        return self

    def __next__(self) -> Weighed:
        self._count += 1
        return self._scale.weigh(lambda: next(self._elements), digests=self._count <= COMPARED)


COMPARED = 16
"""Elements at the beginning of a worker's stream that are compared with those of another's."""
