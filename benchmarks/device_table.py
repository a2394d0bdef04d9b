"""GB/s into a CUDA device, by loader: the table, its ceiling, and what to look at when it is too low.

Invariants: within a round all loaders of a row are measured one after the other, in an order that turns round; a figure
is the median over rounds, a ratio the median of ratios within a round. A pass ends with a synchronisation, inside the
time that is counted, and what arrived last is compared with what was sent. What is counted is the steady state: how
long the first batch took is told apart, and until slots are registered and every worker has seen them, time passes.
Runs in: main.
"""

from __future__ import annotations

import cProfile
import gc
import io
import pstats
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader

import holdfast

from .workloads import SameTensor

SHAPE = (3, 224, 224)
LOADERS = ("stock pinned", "stock plain", "ours pinned", "ours on device")
BUS_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Row:
    dtype: str
    batch: int
    workers: int

    @property
    def title(self) -> str:
        return f"{self.dtype} b{self.batch} w{self.workers}"


@dataclass(frozen=True, slots=True)
class Reading:
    """One pass of one loader."""

    gb_per_s: float
    batches: int
    first_batch_s: float
    close_s: float
    waiting_share: float
    """Of the time that was counted: inside next()."""


def dataset_of(dtype: str) -> SameTensor:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, SHAPE, generator=generator, dtype=torch.uint8)
    return SameTensor(image if dtype == "uint8" else image.to(torch.float32))


def make_loader(name: str, row: Row, dataset: Any, **more: Any) -> DataLoader[Any]:
    options: dict[str, Any] = {"batch_size": row.batch, "num_workers": row.workers, "multiprocessing_context": "fork"}
    if name.startswith("stock"):
        return DataLoader(dataset, pin_memory=name == "stock pinned", **options)
    if name == "ours pinned":
        return holdfast.DataLoader(dataset, pin_memory=True, record=False, **options, **more)
    return holdfast.DataLoader(dataset, device="cuda", record=False, **options, **more)


@contextmanager
def epoch_of(loader: DataLoader[Any]) -> Iterator[Any]:
    epoch = iter(loader)
    try:
        yield epoch
    finally:
        epoch._shutdown_workers()


def measure(name: str, row: Row, options: Any, **more: Any) -> Reading:
    """One pass: warm up, for a time and at least a batch of each worker; then what comes within the window."""
    dataset = dataset_of(row.dtype)
    loader = make_loader(name, row, dataset, **more)
    began = time.perf_counter()
    with epoch_of(loader) as epoch:
        there = next(epoch).to("cuda", non_blocking=True)
        first_batch_s = time.perf_counter() - began
        batches, start = 0, time.perf_counter()
        while batches < row.workers or time.perf_counter() - start < options.warm_up_s:
            there = next(epoch).to("cuda", non_blocking=True)
            batches += 1
        torch.cuda.synchronize()
        batches, waited_s, start = 0, 0.0, time.perf_counter()
        now = start
        while now - start < options.window_s:
            batch = next(epoch)
            waited_s += time.perf_counter() - now
            there = batch.to("cuda", non_blocking=True)
            batches += 1
            now = time.perf_counter()
        torch.cuda.synchronize()
        took_s = time.perf_counter() - start
        nbytes = there.nbytes
        assert torch.equal(there[-1].cpu(), dataset.tensor), "what arrived is not what was sent"
        del batch, there
        closing = time.perf_counter()
    close_s = time.perf_counter() - closing
    del epoch, loader
    gc.collect()
    return Reading(batches * nbytes / took_s / 1e9, batches, first_batch_s, close_s, waited_s / took_s)


def measure_table(notes: Any) -> None:
    options = notes.options
    rows = [
        Row(dtype, int(batch), int(workers))
        for batch in options.batch.split(",")
        for dtype in options.dtypes.split(",")
        for workers in options.workers.split(",")
    ]
    ceiling = bus_gb_per_s()
    notes.keep("bus GB/s", ceiling)
    lines = []
    for row in rows:
        readings: dict[str, list[Reading]] = {name: [] for name in LOADERS}
        for turn in range(options.rounds):
            if notes.left_s < len(LOADERS) * options_s(notes):
                break
            for k in range(len(LOADERS)):
                name = LOADERS[(k + turn) % len(LOADERS)]
                readings[name].append(measure(name, row, options))
        if not all(readings.values()):
            notes.say(f"no time left for {row.title}")
            break
        notes.keep(row.title, summary(readings, ceiling))
        lines.append(line_of(row, readings, ceiling))
    notes.keep("bus GB/s, again", bus_gb_per_s())
    print("\n".join([f"{'row':20}" + "".join(f"{name:>16}" for name in LOADERS) + "   ratios, of the bus", *lines]))


def summary(readings: dict[str, list[Reading]], ceiling: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, passes in readings.items():
        pairs = zip(passes, readings["stock pinned"], strict=True)
        found[name] = {
            "GB/s": median(each.gb_per_s for each in passes),
            "to stock pinned": median(each.gb_per_s / stock.gb_per_s for each, stock in pairs),
            "of the bus": median(each.gb_per_s for each in passes) / ceiling,
            "passes": [asdict(each) for each in passes],
        }
    return found


def line_of(row: Row, readings: dict[str, list[Reading]], ceiling: float) -> str:
    found = summary(readings, ceiling)
    figures = "".join(f"{found[name]['GB/s']:16.1f}" for name in LOADERS)
    ours = [found[name] for name in LOADERS[2:]]
    ratios = ", ".join(f"{each['to stock pinned']:.1f}x {each['of the bus']:.0%}" for each in ours)
    return f"{row.title:20}{figures}   {ratios}"


def bus_gb_per_s(copies: int = 10) -> float:
    """One large copy from torch's own pinned memory, the median of some, timed on the device."""
    source = torch.randint(0, 256, (BUS_BYTES,), dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device="cuda")
    taken: list[float] = []
    for _ in range(copies):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source, non_blocking=True)
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 1e3)
    return BUS_BYTES / median(taken[1:]) / 1e9


def measure_bus(notes: Any) -> None:
    """The ceiling, and what registering costs: pages that are there already, and pages that are not."""
    from holdfast.transport.segments import Segment

    notes.keep("bus GB/s", bus_gb_per_s())
    cudart = torch.cuda.cudart()
    for touched in (False, True):
        for nbytes in (38_535_168, 154_140_672, 1 << 30):
            segment = Segment.create(nbytes)
            if touched:
                torch.frombuffer(segment.view, dtype=torch.uint8).fill_(1)
            start = time.perf_counter()
            refused = int(cudart.cudaHostRegister(segment.address, nbytes, 1))
            registered = time.perf_counter()
            is_pinned = torch.frombuffer(segment.view, dtype=torch.uint8).is_pinned()
            again = time.perf_counter()
            cudart.cudaHostUnregister(segment.address)
            end = time.perf_counter()
            segment.close_fd()
            key = f"register {nbytes / 1e6:.0f} MB, {'touched' if touched else 'fresh'}"
            found = {"refused": refused, "is_pinned": is_pinned}
            notes.keep(key, {**found, "ms": (registered - start) * 1e3, "undo ms": (end - again) * 1e3})
            del segment


def measure_depth(notes: Any) -> None:
    """Ours with device=, and pinned, by how far ahead things are done."""
    row = Row("float32", 64, 12)
    for round_number in range(2):
        for prefetch_factor in (2, 4):
            for name, depths in (("ours on device", (1, 2, 4, 8)), ("ours pinned", (2,))):
                for depth in depths:
                    if notes.left_s < options_s(notes):
                        return
                    more = {"prefetch_to_device": depth, "prefetch_factor": prefetch_factor}
                    reading = measure(name, row, notes.options, **more)
                    notes.keep(f"{name}, {depth} copied, factor {prefetch_factor}, {round_number}", asdict(reading))


def options_s(notes: Any) -> float:
    """What one pass takes, about."""
    return float(notes.options.warm_up_s + notes.options.window_s) + 1.5


def profile(notes: Any) -> None:
    """Where the main thread spends its time: by function, for one row, pinned and on the device."""
    for name in LOADERS[2:]:
        for row in (Row("float32", 64, 12), Row("uint8", 64, 12)):
            profiler = cProfile.Profile()
            profiler.enable()
            reading = measure(name, row, notes.options)
            profiler.disable()
            text = io.StringIO()
            pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(28)
            notes.keep(f"{name}, {row.title}", {**asdict(reading), "profile": text.getvalue()})
            print(text.getvalue()[-3600:], flush=True)
