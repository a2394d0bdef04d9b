"""Datasets whose samples show where they came from, and which random numbers their worker drew.

Nothing is kept on a dataset object between samples: such state dies with a worker, and torch's loader is no oracle for
it. Runs in: worker processes, and main without workers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

Draw = Literal["python", "numpy", "torch"]
DRAWS: tuple[Draw, ...] = ("python", "numpy", "torch")


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What one sample costs and holds."""

    nbytes: int
    sleep_s: float
    spin_s: float
    draws: tuple[Draw, ...]

    def make(self, index: int) -> dict[str, Any]:
        """Load sample `index`: its bytes say which it is, its numbers what was drawn before it."""
        self._work()
        data = torch.full((self.nbytes,), index % 251, dtype=torch.uint8)
        return {"index": index, "data": data, "drawn": self.draw()}

    def draw(self) -> list[float]:
        """Draw from the global generators, an odd number of times: normal numbers are made in pairs and one is kept."""
        drawn = []
        if "python" in self.draws:
            drawn += [random.random(), random.gauss(0.0, 1.0)]
            for _ in range(random.randrange(3)):
                random.random()
        if "numpy" in self.draws:
            drawn += [float(np.random.random()), float(np.random.standard_normal())]
        if "torch" in self.draws:
            drawn += [float(torch.rand(1)), float(torch.randn(1))]
        return drawn

    def _work(self) -> None:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        end = time.perf_counter() + self.spin_s
        while time.perf_counter() < end:
            pass


class Samples(Dataset[dict[str, Any]]):
    """Map-style, sample by sample."""

    def __init__(self, spec: SampleSpec, length: int) -> None:
        self.spec, self.length = spec, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.spec.make(index)


class SamplesInOneCall(Samples):
    """Map-style, a whole batch in one call."""

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self.spec.make(index) for index in indices]


class Elements(IterableDataset[dict[str, Any]]):
    """Iterable, a generator: only running it again finds the place where it was."""

    def __init__(self, spec: SampleSpec, length: int) -> None:
        self.spec, self.length = spec, length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.spec.make, own_share(self.length))


class ShuffledElements(Elements):
    """Iterable with a shuffle buffer, in an order drawn by the worker."""

    SIZE = 16

    def __iter__(self) -> Iterator[dict[str, Any]]:
        buffer: list[int] = []
        for index in own_share(self.length):
            if len(buffer) < self.SIZE:
                buffer.append(index)
                continue
            place = random.randrange(self.SIZE)
            index, buffer[place] = buffer[place], index  # noqa: PLW2901
            yield self.spec.make(index)
        random.shuffle(buffer)
        yield from map(self.spec.make, buffer)


class PermutedElements(Elements):
    """Iterable, not a generator: its order is drawn as the epoch begins, before the first element is asked for."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        order = list(own_share(self.length))
        random.shuffle(order)
        return map(self.spec.make, order)


class StatefulElements(Elements):
    """Iterable whose iterator says where it is. Its state is `state_bytes` larger than need be."""

    def __init__(self, spec: SampleSpec, length: int, state_bytes: int) -> None:
        super().__init__(spec, length)
        self.state_bytes = state_bytes

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return _StatefulIterator(self)


class _StatefulIterator(Iterator[dict[str, Any]]):
    def __init__(self, dataset: StatefulElements) -> None:
        self._spec, self._share = dataset.spec, own_share(dataset.length)
        self._ballast = b"x" * dataset.state_bytes
        self._position = 0

    def __next__(self) -> dict[str, Any]:
        if self._position >= len(self._share):
            raise StopIteration
        index = self._share[self._position]
        self._position += 1
        return self._spec.make(index)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position, "ballast": self._ballast}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["ballast"] == self._ballast
        self._position = state["position"]


def own_share(length: int) -> range:
    """The indices of this worker: w, w + n, w + 2n..."""
    info = get_worker_info()
    first, step = (0, 1) if info is None else (info.id, info.num_workers)
    return range(first, length, step)


def list_collate(samples: Any) -> Any:
    """Keep samples as they are."""
    return list(samples) if isinstance(samples, list) else samples


def drawing_collate(samples: list[dict[str, Any]]) -> Any:
    """Collate in an order that is drawn."""
    order = torch.randperm(len(samples)).tolist()
    return default_collate([samples[k] for k in order]), random.random()


def drawing_init(worker_id: int) -> None:
    """Draw before the first sample, as augmentation libraries do that seed themselves from torch."""
    np.random.seed(torch.randint(1 << 31, (1,)).item() + worker_id)


COLLATES: dict[str, Callable[[Any], Any] | None] = {"default": None, "list": list_collate, "drawing": drawing_collate}
