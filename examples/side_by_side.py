"""One epoch of the same work through torch's loader and through holdfast's, side by side.

First both loaders walk the same shuffled epoch, batch by batch, and every pair of batches is compared. Then they are
timed, whole epochs in turn, with nothing in the timed loop but the loop; the ratio is that of the medians.

Run it with `make demo`. The exit status is 1 when a batch differs.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import Any, TypedDict

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset

from holdfast import DataLoader as HoldfastDataLoader

BATCH_SIZE = 64
ROUNDS = 5
STORED, SIDE, CROP = 64, 256, 224


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


Loader = TorchDataLoader[Sample]
MakeLoader = Callable[[], Loader]


def loader_makers(workers: int, batches: int) -> dict[str, MakeLoader]:
    """Makers of both loaders, with the same arguments and the same seed."""
    dataset = RandomCrops(BATCH_SIZE * batches)

    def maker(kind: type[Loader]) -> MakeLoader:
        def make() -> Loader:
            generator = torch.Generator().manual_seed(7)
            return kind(dataset, BATCH_SIZE, shuffle=True, num_workers=workers, generator=generator)

        return make

    return {"torch": maker(TorchDataLoader), "holdfast": maker(HoldfastDataLoader)}


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


def timed_rounds(makers: dict[str, MakeLoader], done: Callable[[str], None]) -> dict[str, list[Timing]]:
    """Time both loaders in turn; who goes first changes from round to round."""
    timings: dict[str, list[Timing]] = {name: [] for name in makers}
    for number in range(ROUNDS):
        for name in sorted(makers, reverse=number % 2 == 0):
            timings[name].append(timed_epoch(makers[name]()))
            done(name)
    return timings


def results_table(timings: dict[str, list[Timing]]) -> Table:
    rates = {name: median(t.batches_per_s for t in rounds) for name, rounds in timings.items()}
    firsts = {name: median(t.first_batch_s for t in rounds) for name, rounds in timings.items()}
    table = Table("", "torch", "holdfast", "ratio")
    ratio = rates["holdfast"] / rates["torch"]
    table.add_row("batches per second", f"{rates['torch']:.1f}", f"{rates['holdfast']:.1f}", f"{ratio:.1f}x")
    ratio = firsts["holdfast"] / firsts["torch"]
    table.add_row("first batch after", f"{firsts['torch']:.2f} s", f"{firsts['holdfast']:.2f} s", f"{ratio:.2f}x")
    return table


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def several(text: str) -> int:
    value = positive(text)
    if value < 2:
        raise argparse.ArgumentTypeError("a rate needs at least 2 batches")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description="One epoch through torch's loader and ours, side by side.")
    parser.add_argument("--workers", type=positive, default=2, help="worker processes of each loader (default: 2)")
    parser.add_argument("--batches", type=several, default=40, help="batches in an epoch (default: 40)")
    arguments = parser.parse_args()

    console = Console()
    makers = loader_makers(arguments.workers, arguments.batches)
    work = f"{arguments.batches} batches of {BATCH_SIZE} x 3 x {CROP} x {CROP} float32, {arguments.workers} workers"
    console.print(f"{work}, torch {torch.__version__}")
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

    with Progress(*columns, console=console) as progress:
        bars = {name: progress.add_task(f"comparing: {name}", total=arguments.batches) for name in makers}
        equal, compared = count_equal(makers, lambda name: progress.advance(bars[name]))
    if equal < compared:
        console.print(f"{compared - equal} of {compared} batches differ", style="bold red")
        return 1
    console.print(f"all {compared} batches are equal: same order, same random crops, same values", style="bold green")

    # The bars move between the timed epochs only: drawing them takes time of the thread that is measured.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        bars = {name: progress.add_task(f"timing: {name}", total=ROUNDS) for name in makers}
        timings = timed_rounds(makers, lambda name: progress.update(bars[name], advance=1, refresh=True))
    console.print(results_table(timings))
    console.print(f"medians of {ROUNDS} epochs each, in turn; the rate counts from the first batch to the last")
    return 0


if __name__ == "__main__":
    sys.exit(main())
