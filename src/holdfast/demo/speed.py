"""One epoch of the same work through torch's loader and through ours, side by side.

First both loaders walk the same shuffled epoch, batch by batch, and every pair of batches is compared. Then they are
timed, whole epochs in turn, with nothing in the timed loop but the loop; the ratio is that of the medians.

Runs in: main process | worker process (the dataset).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from statistics import median
from typing import Any, TypedDict

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset

from holdfast.loader.dataloader import DataLoader as HoldfastDataLoader

BATCH_SIZE = 64
STORED, SIDE, CROP = 64, 256, 224
WORK = f"batches of {BATCH_SIZE} x 3 x {CROP} x {CROP} float32"
FEW_BATCHES = 10
"""In an epoch of fewer the rate is that of its first and last moments: nothing to compare."""


class Sample(TypedDict):
    image: torch.Tensor
    label: int
    name: str


class RandomCrops(Dataset[Sample]):
    """Random 224x224 crops of a few float32 images in memory: cheap samples, so that the loader itself is measured."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.images = torch.rand(STORED, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        top, left = torch.randint(SIDE - CROP + 1, (2,)).tolist()
        image = self.images[index % STORED, :, top : top + CROP, left : left + CROP]
        return {"image": image, "label": index % 10, "name": f"image {index}"}


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed epoch."""

    first_batch_s: float
    batches_per_s: float


@dataclass(frozen=True, slots=True)
class SpeedResult:
    """How many batches were equal, and the median epoch of each loader; none if a batch differed."""

    batches: int
    equal: int
    medians: dict[str, Timing]
    torch_failed: str | None = None
    """Why torch's loader could not do it, as where /dev/shm is small: nothing could be compared then."""

    @property
    def ratio(self) -> float | None:
        """Our batches per second over torch's; None too where there were too few batches to say."""
        rates = {name: timing.batches_per_s for name, timing in self.medians.items()}
        return rates["holdfast"] / rates["torch"] if rates and self.batches >= FEW_BATCHES else None


Loader = TorchDataLoader[Sample]
MakeLoader = Callable[[], Loader]
Timings = dict[str, list[Timing]]


def loader_makers(workers: int, batches: int) -> dict[str, MakeLoader]:
    """Makers of both loaders, with the same arguments and the same seed."""
    dataset = RandomCrops(BATCH_SIZE * batches)

    def maker(kind: Callable[..., Loader]) -> MakeLoader:
        def make() -> Loader:
            generator = torch.Generator().manual_seed(7)
            return kind(dataset, BATCH_SIZE, shuffle=True, num_workers=workers, generator=generator)

        return make

    # These are no runs of the user's: they leave no record.
    return {"torch": maker(TorchDataLoader), "holdfast": maker(partial(HoldfastDataLoader, record=False))}


def same(left: Any, right: Any) -> bool:
    """Whether two batches are equal in structure, types, dtypes, shapes and every value."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, Sequence) and not isinstance(left, str):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def count_equal(makers: dict[str, MakeLoader], advance: Callable[[str], None]) -> tuple[int, int]:
    """Walk both loaders batch by batch; return how many pairs were equal, and how many there were."""

    def walk(name: str) -> Iterator[Any]:
        for batch in makers[name]():
            advance(name)
            yield batch

    # A loader that ends early is filled up with None, which no batch is equal to.
    results = [same(*pair) for pair in zip_longest(walk("torch"), walk("holdfast"))]
    return sum(results), len(results)


def timed_epoch(loader: Loader) -> Timing:
    """Time one epoch: start to first batch, and the rate from the first batch to the last."""
    started = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first = last = time.perf_counter()
    count = 0
    for _ in batches:
        last = time.perf_counter()
        count += 1
    return Timing(first - started, count / (last - first))


def timed_rounds(makers: dict[str, MakeLoader], rounds: int, done: Callable[[str], None]) -> Timings:
    """Time both loaders in turn; who goes first changes from round to round."""
    timings: dict[str, list[Timing]] = {name: [] for name in makers}
    for number in range(rounds):
        for name in sorted(makers, reverse=number % 2 == 0):
            timings[name].append(timed_epoch(makers[name]()))
            done(name)
    return timings


def medians(timings: Timings) -> dict[str, Timing]:
    """Return the median epoch of each loader, figure by figure."""
    return {
        name: Timing(median(one.first_batch_s for one in rounds), median(one.batches_per_s for one in rounds))
        for name, rounds in timings.items()
    }
