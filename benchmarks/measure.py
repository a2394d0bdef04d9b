"""Throughput: one timed pass, and the interleaved rounds over all that is compared for a row.

Invariants: every contender is measured in every round; torch's loader and ours with the same number of workers run one
right after the other, and the order turns round with every round, so that a slow minute of the machine hits both.
A ratio is the median over rounds of ratios within a round. Warm-up batches are never counted.
Runs in: main.
"""

from __future__ import annotations

import faulthandler
import gc
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from statistics import median
from typing import Any

import psutil
from torch.utils.data import DataLoader, Dataset

from .ceiling import ceiling_rate
from .consumer import touch
from .loaders import LOADERS, LoaderName, iterating, make_loader
from .workloads import Workload

HANG_S = 180.0
"""A pass that takes longer hangs: all stacks are dumped and the run ends."""
_IDLE_LOOK_S, _IDLE_LOOKS, _IDLE_SHARE = 0.01, 200, 0.1


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that is timed: "torch" or "holdfast" with workers, "in-process", or "ceiling"."""

    kind: str
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Pass:
    """One measured pass: what came, how long it took, and the CPU time of all its processes and of the main one."""

    batches: int
    wall_s: float
    cpu_s: float = 0.0
    main_cpu_s: float = 0.0
    others_cpu_s: float = 0.0
    """CPU time that went to the rest of the machine: a busy neighbour spoils a pass."""

    def __add__(self, other: Pass) -> Pass:
        """Both together."""
        return Pass(*map(operator.add, astuple(self), astuple(other)))

    @property
    def rate(self) -> float:
        """Batches per second."""
        return self.batches / self.wall_s

    @property
    def cpu_ms(self) -> float:
        """CPU time of all processes per batch, in milliseconds."""
        return 1e3 * self.cpu_s / self.batches

    @property
    def main_cpu_us(self) -> float:
        """CPU time of the main process per batch, in microseconds, the consumer's included."""
        return 1e6 * self.main_cpu_s / self.batches


@dataclass(frozen=True, slots=True)
class RowResult:
    """All passes of one row, by contender, in the order of rounds."""

    workload: Workload
    passes: dict[Contender, list[Pass]]

    def worker_counts(self) -> list[int]:
        """Return the numbers of workers that were measured."""
        return [contender.workers for contender in self.passes if contender.kind == "torch"]

    def rate(self, kind: str, workers: int = 0) -> float:
        """Return the median rate in batches per second."""
        return self.median(kind, workers, lambda one: one.rate)

    def median(self, kind: str, workers: int, value: Callable[[Pass], float]) -> float:
        """Return the median over rounds of one figure of a contender."""
        return median(value(one) for one in self.passes[Contender(kind, workers)])

    def others_cores(self) -> float:
        """Return the median number of cores that were busy with something else."""
        return others_cores(
            one for contender, passes in self.passes.items() if contender.kind != "ceiling" for one in passes
        )

    def ratios(self, workers: int) -> list[float]:
        """Return ours over torch's, one ratio per round."""
        pairs = zip(self.passes[Contender("holdfast", workers)], self.passes[Contender("torch", workers)], strict=True)
        return [ours.rate / stock.rate for ours, stock in pairs]

    def ratio(self, workers: int) -> float:
        """Return the median ratio of ours to torch's."""
        return median(self.ratios(workers))


def others_cores(passes: Iterable[Pass]) -> float:
    """Return the median number of cores that were busy with something else."""
    return median(one.others_cpu_s / one.wall_s for one in passes)


def measure_row(
    workload: Workload, worker_counts: Sequence[int], rounds: int, window_s: float, tick: Callable[[str], None]
) -> RowResult:
    """Measure one row; `tick` is told of every pass before it starts."""
    dataset = workload.make_dataset()
    result = RowResult(workload, {contender: [] for contender in contenders(worker_counts)})
    for number in range(rounds):
        order = list(result.passes)
        for contender in order if number % 2 == 0 else reversed(order):
            tick(f"{workload.name}, round {number + 1} of {rounds}: {contender.kind} {contender.workers or ''}")
            result.passes[contender].append(measure(contender, workload, dataset, window_s * workload.window))
    return result


def contenders(worker_counts: Sequence[int]) -> list[Contender]:
    """List what is compared, pairs next to each other."""
    pairs = [Contender(kind, workers) for workers in worker_counts for kind in LOADERS]
    return [Contender("in-process"), *pairs, Contender("ceiling")]


def measure(contender: Contender, workload: Workload, dataset: Dataset[Any], window_s: float) -> Pass:
    """Measure one contender once."""
    gc.collect()
    with hang_guard():
        if contender.kind == "ceiling":
            batches, wall_s = ceiling_rate(workload, dataset, window_s)
            return Pass(batches, wall_s)
        name: LoaderName = "holdfast" if contender.kind == "holdfast" else "torch"
        loader = make_loader(name, workload, dataset, contender.workers)
        return timed_pass(loader, window_s)


def timed_pass(loader: DataLoader[Any], window_s: float) -> Pass:
    """Warm the loader up, then count batches until the window is over."""
    with running(loader) as epoch:
        return epoch.measure(window_s)


@contextmanager
def running(loader: DataLoader[Any]) -> Iterator[RunningEpoch]:
    """An epoch of the loader, warmed up; its workers are stopped at the end."""
    before = _children()
    with iterating(loader) as iterator:
        for _ in range(warm_up_batches(loader)):
            touch(next(iterator))
        yield RunningEpoch(iterator, CpuClocks(_children() - before))  # not before all workers have come to be


@dataclass(frozen=True, slots=True)
class RunningEpoch:
    """An epoch in the middle, and the clocks of its processes."""

    iterator: Iterator[Any]
    clocks: CpuClocks

    def measure(self, window_s: float, *, until_idle: bool = False) -> Pass:
        """Count batches until the window is over. With `until_idle` the CPU time ends when all has been done that was
        begun: an epoch that goes on later then has found some batches ready, and left as many ready.
        """
        before = self.clocks.read()
        batches, wall_s = drain(self.iterator, window_s)
        if until_idle:
            self.clocks.wait_until_idle()
        after = self.clocks.read()
        cpu_s, main_s, machine_s = (late - early for late, early in zip(after, before, strict=True))
        return Pass(batches, wall_s, cpu_s, main_s, max(0.0, machine_s - cpu_s))


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def warm_up_batches(loader: DataLoader[Any]) -> int:
    """Twice as many batches as are in flight, and some: every buffer of every loader has then been used."""
    return 4 + 2 * loader.num_workers * (loader.prefetch_factor or 0)


def drain(iterator: Iterator[Any], window_s: float) -> tuple[int, float]:
    """Take batches for a while; return how many came and how long it took."""
    batches = 0
    start = now = time.perf_counter()
    for batch in iterator:
        touch(batch)
        batches += 1
        now = time.perf_counter()
        if now - start >= window_s:
            break
    return batches, now - start


class CpuClocks:
    """CPU time of this process, of those below it that are given, and of the machine; read cheaply."""

    def __init__(self, children: Iterable[int]) -> None:
        self._children = [cpu_clock(pid) for pid in children]

    def read(self) -> tuple[float, float, float]:
        """Return seconds so far: of all our processes, of the main process, and of the whole machine."""
        main_s = time.process_time()
        ours_s = main_s + self._children_s()
        return ours_s, main_s, _busy_s(psutil.cpu_times())

    def wait_until_idle(self) -> None:
        """Until the processes below do next to nothing, for a while at most."""
        used_s = self._children_s()
        for _ in range(_IDLE_LOOKS):
            time.sleep(_IDLE_LOOK_S)
            before_s, used_s = used_s, self._children_s()
            if used_s - before_s < _IDLE_SHARE * _IDLE_LOOK_S:
                return

    def _children_s(self) -> float:
        return sum(map(time.clock_gettime, self._children))


def cpu_clock(pid: int) -> int:
    """Return the clock that counts a process's CPU time in nanoseconds (/proc counts hundredths of a second).

    This is what `clock_getcpuclockid` computes, which Python has for threads only: see the kernel's posix-timers.h.
    """
    return (~pid << 3) | 2


def _busy_s(times: Any) -> float:
    return float(times.user + times.system)


@contextmanager
def hang_guard(limit_s: float = HANG_S) -> Iterator[None]:
    """End the run with all stacks if the body takes longer."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
