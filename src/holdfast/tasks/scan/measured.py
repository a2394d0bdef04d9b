"""The user's dataset with every sample reduced to what a scan keeps of it: no sample leaves its worker.

One sample is one call, also of a dataset that can load many at once: so it is known whose fault a crash is, and how
long each takes. An iterator stays what it is, one that goes on after an exception or one that does not, and one that
knows its state keeps knowing it.

Runs in: worker process (and is made in the main process).
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from holdfast.tasks.scan.signature import Signature, look_at

_STATE_EVERY_S = 1.0


class Measurement(NamedTuple):
    """One sample. `stream` is the worker whose part of an iterable it is from, and 0 for a dataset with indices."""

    stream: int
    position: int
    signature: Signature
    nbytes: int
    seconds: float
    is_first: bool
    """Of its worker: it may have been slow for what was done once."""
    state: str = ""
    """Of an iterable that knows its state: how to go on after this element, as JSON. Now and then."""


def pack(measured: list[Measurement | None]) -> bytes:
    """The collate function: to the loader a batch is one object, however many samples it was."""
    return pickle.dumps([tuple(each) for each in measured if each is not None])


def unpack(batch: bytes) -> list[Measurement]:
    return [Measurement(*each) for each in pickle.loads(batch)]


class _Meter:
    """Equal signatures are one object, so that a batch names each once."""

    def __init__(self) -> None:
        self._known: dict[Signature, Signature] = {}
        self._has_measured = False

    def measure(self, stream: int, position: int, sample: Any, seconds: float, state: str = "") -> Measurement:
        look = look_at(sample)
        if len(self._known) > 1000:
            self._known.clear()
        signature = self._known.setdefault(look.parts, look.parts)
        is_first, self._has_measured = not self._has_measured, True
        return Measurement(stream, position, signature, look.nbytes, seconds, is_first, state)


def measured_samples(dataset: Any) -> MeasuredSamples:
    """Of a dataset with indices. Its class has the name of the user's: that is what the record of the run tells."""
    kind: type[MeasuredSamples] = type(type(dataset).__name__, (MeasuredSamples,), {})
    return kind(dataset)


def measured_elements(dataset: Any, done: Mapping[int, int], states: Mapping[int, tuple[int, str]]) -> MeasuredElements:
    """Of an iterable dataset, likewise. `done` elements of each worker's stream are run again and not looked at.

    `states`: where a stream that knows its state goes on, as (position, state).
    """
    kind: type[MeasuredElements] = type(type(dataset).__name__, (MeasuredElements,), {})
    return kind(dataset, done, states)


class MeasuredSamples(Dataset[Measurement]):
    """`dataset[index]` is measured."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._takes_lists = bool(getattr(dataset, "__getitems__", None))  # then a loader would call that
        self._meter = _Meter()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Measurement:
        start = time.perf_counter()
        sample = self.dataset.__getitems__([index])[0] if self._takes_lists else self.dataset[index]
        return self._meter.measure(0, index, sample, time.perf_counter() - start)

    def __reduce__(self) -> tuple[Any, ...]:
        return measured_samples, (self.dataset,)


class MeasuredElements(IterableDataset[Any]):
    """Each element is measured."""

    def __init__(self, dataset: Any, done: Mapping[int, int], states: Mapping[int, tuple[int, str]]) -> None:
        self.dataset = dataset
        self._done, self._states = dict(done), dict(states)

    def __iter__(self) -> Iterator[Measurement | None]:
        info = get_worker_info()
        stream = 0 if info is None else info.id
        elements = _elements(self.dataset, stream, self._done.get(stream, 0))
        if stream in self._states and isinstance(elements, _StatefulElements):
            position, state = self._states[stream]
            elements.go_to(position, json.loads(state))
        return elements

    def __reduce__(self) -> tuple[Any, ...]:
        return measured_elements, (self.dataset, self._done, self._states)


class _Elements:
    """Of one worker's stream. A class and no generator: that would end with the first element that raises."""

    def __init__(self, iterator: Any, stream: int, done: int) -> None:
        self._iterator = iterator
        self._stream, self._done = stream, done
        self._position = 0
        self._meter = _Meter()

    def __iter__(self) -> Iterator[Measurement | None]:
        return self

    def __next__(self) -> Measurement | None:
        position, self._position = self._position, self._position + 1  # it counts, whether or not it raises
        start = time.perf_counter()
        element = next(self._iterator)
        if position < self._done:
            return None
        return self._meter.measure(self._stream, position, element, time.perf_counter() - start, self._state_to_keep())

    def _state_to_keep(self) -> str:
        return ""


class _StatefulElements(_Elements):
    """Where the dataset, or its iterator, has state_dict() and load_state_dict()."""

    def __init__(self, dataset: Any, iterator: Any, stream: int, done: int) -> None:
        super().__init__(iterator, stream, done)
        self._dataset, self._is_iterators = dataset, _knows_state(iterator)
        self._kept_at_s = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """For the loader, when another worker has to take this stream up."""
        owner = self._iterator if self._is_iterators else self._dataset
        return {"position": self._position, "state": owner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.go_to(state["position"], state["state"])

    def go_to(self, position: int, state: Any) -> None:
        self._position = position
        if self._is_iterators:
            self._iterator.load_state_dict(state)
        else:
            self._dataset.load_state_dict(state)
            self._iterator = iter(self._dataset)

    def _state_to_keep(self) -> str:
        if time.monotonic() - self._kept_at_s < _STATE_EVERY_S:
            return ""
        self._kept_at_s = time.monotonic()
        try:
            return json.dumps(self.state_dict()["state"])
        except Exception:  # not plain data, or it means something else: the stream is run again, then
            return ""


def _elements(dataset: Any, stream: int, done: int) -> _Elements:
    iterator = iter(dataset)
    if _knows_state(iterator) or _knows_state(dataset):
        return _StatefulElements(dataset, iterator, stream, done)
    return _Elements(iterator, stream, done)


def _knows_state(thing: object) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))
