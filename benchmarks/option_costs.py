"""What our own options cost, and the diagnosis: our loader with them against our loader without, on the table's rows.

CPU time is user and system time of the main process, the supervisor and the workers together, over a steady window of
the epoch: a cost that moves from one process to another still shows. It is read from the clocks of the running
processes, after the warm-up and before the end. `getrusage` of a whole child process would count the import of torch,
the forks and the shutdown as well, many times what an option costs a batch.

Invariants: within a round the loaders of all settings are in mid-epoch at once, and take turns, a slice of the window
each, in an order that turns round: a slow second of the machine hits all of them. While one is measured the others have
nothing to do. A ratio is the median over rounds of ratios within a round. One more loader without any option, against
the first one, shows the noise of this run: throughput may not be lower by more than that.
Runs in: main.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from torch.utils.data import Dataset

from holdfast.options import DIAGNOSIS, GROWTH

from .loaders import make_loader
from .measure import Pass, RunningEpoch, hang_guard, others_cores, running
from .workloads import Workload

WORKERS = 2
SLICES = 6
SAMPLE_TIMEOUT_S = 30.0
LEAST_NOISE, MOST_NOISE = 0.02, 0.1
"""A noisier run is no excuse for a lower throughput."""
WITHOUT, AGAIN, UNDIAGNOSED, UNWATCHED = "without", "again", "undiagnosed", "unwatched"


@dataclass(frozen=True, slots=True)
class Setting:
    """Arguments of our loader whose cost is measured; `arguments` is given a new folder for the files it needs."""

    name: str
    title: str
    arguments: Callable[[Path], Mapping[str, Any]]
    most_cpu: float | None = None
    """CPU time per batch that it may take, as a ratio; None: there is no target."""
    against: str = WITHOUT
    """The setting that has it not."""
    diagnoses: bool = True
    """Whether workers are diagnosed and the run is recorded, as they are by default."""
    watches_growth: bool = True
    """Whether workers watch their own growth, as they do by default."""


def _nothing(folder: Path) -> Mapping[str, Any]:
    return {}


def _recovery(folder: Path) -> Mapping[str, Any]:
    return {"on_error": "replace", "sample_timeout": SAMPLE_TIMEOUT_S, "skipped_file": folder / "skipped.jsonl"}


def _limits(folder: Path) -> Mapping[str, Any]:
    return {"memory_limit": "8GB", "memory_budget": "80%"}


NOTHING = (
    Setting(AGAIN, "no option, again", _nothing),
    Setting(WITHOUT, "no option", _nothing),
    Setting(UNDIAGNOSED, "no option, no diagnosis, no record", _nothing, diagnoses=False),
    Setting(UNWATCHED, "no option, no watch on growth", _nothing, watches_growth=False),
)
SETTINGS = (
    Setting("diagnosis", "diagnosis, record", _nothing, most_cpu=1.02, against=UNDIAGNOSED),
    Setting("recovery", 'on_error="replace", sample_timeout, skipped_file', _recovery, most_cpu=1.05),
    Setting("limits", "memory_limit, memory_budget, growth watched", _limits, most_cpu=1.05, against=UNWATCHED),
    Setting("rng", 'rng="sample"', lambda folder: {"rng": "sample"}),
)
_AGAINST = {setting.name: setting.against for setting in (*NOTHING, *SETTINGS)}


@dataclass(frozen=True, slots=True)
class OptionResult:
    """All passes over one row, by setting, in the order of rounds."""

    workload: Workload
    passes: dict[str, list[Pass]] = field(
        default_factory=lambda: {setting.name: [] for setting in (*NOTHING, *SETTINGS)}
    )

    def median(self, setting: str, value: Callable[[Pass], float]) -> float:
        """Return the median over rounds of one figure of a setting."""
        return median(value(one) for one in self.passes[setting])

    def ratios(self, setting: str, value: Callable[[Pass], float]) -> list[float]:
        """Return one figure of a setting over the same without it, one ratio per round."""
        pairs = zip(self.passes[setting], self.passes[_AGAINST[setting]], strict=True)
        return [value(with_it) / value(without) for with_it, without in pairs]

    def cpu_ratio(self, setting: str) -> float:
        """Return the median ratio of CPU time per batch."""
        return median(self.ratios(setting, cpu_ms))

    def rate_ratio(self, setting: str) -> float:
        """Return the median ratio of batches per second."""
        return median(self.ratios(setting, rate))

    def sample_us(self, setting: str) -> float:
        """Return the CPU time that a setting adds to a sample, in microseconds."""
        added = self.median(setting, cpu_ms) - self.median(_AGAINST[setting], cpu_ms)
        return 1e3 * added / self.workload.batch_size

    def others_cores(self) -> float:
        """Return the median number of cores that were busy with something else."""
        return others_cores(chain.from_iterable(self.passes.values()))

    @property
    def noise(self) -> float:
        """How far apart two passes of the same loader came in a round: the median over rounds."""
        return median(abs(1 - ratio) for ratio in self.ratios(AGAIN, rate))

    @property
    def least_rate_ratio(self) -> float:
        """The throughput that is no lower, beyond noise."""
        return 1 - min(max(self.noise, LEAST_NOISE), MOST_NOISE)


def cpu_ms(one: Pass) -> float:
    """CPU time of all processes per batch."""
    return one.cpu_ms


def rate(one: Pass) -> float:
    """Batches per second."""
    return one.rate


def measure_options(
    workloads: Sequence[Workload], rounds: int, window_s: float, tick: Callable[[str], None]
) -> list[OptionResult]:
    """Measure all settings on each row."""
    return [_measure_row(workload, rounds, window_s, tick) for workload in workloads]


def _measure_row(workload: Workload, rounds: int, window_s: float, tick: Callable[[str], None]) -> OptionResult:
    result, dataset = OptionResult(workload), workload.make_dataset()
    for number in range(rounds):
        tick(f"options, {workload.name}, round {number + 1} of {rounds}")
        gc.collect()
        with hang_guard():
            for name, one in _measure_round(workload, dataset, window_s * workload.window).items():
                result.passes[name].append(one)
    return result


def _measure_round(workload: Workload, dataset: Dataset[Any], window_s: float) -> dict[str, Pass]:
    with ExitStack() as stack:
        epochs = {
            setting.name: stack.enter_context(_running(setting, workload, dataset)) for setting in (*NOTHING, *SETTINGS)
        }
        passes = dict.fromkeys(epochs, Pass(0, 0.0))
        for number in range(SLICES):
            for name in epochs if number % 2 == 0 else reversed(epochs):
                passes[name] += epochs[name].measure(window_s / SLICES, until_idle=True)
        return passes


@contextmanager
def _running(setting: Setting, workload: Workload, dataset: Dataset[Any]) -> Iterator[RunningEpoch]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        arguments = {**workload.holdfast_arguments, **setting.arguments(Path(folder))}
        loader = make_loader("holdfast", replace(workload, holdfast_arguments=arguments), dataset, WORKERS)
        with _environment(setting):
            epoch = stack.enter_context(running(loader))
        yield epoch


@contextmanager
def _environment(setting: Setting) -> Iterator[None]:
    """For the workers that are started meanwhile, which are forks."""
    os.environ[DIAGNOSIS], os.environ[GROWTH] = str(int(setting.diagnoses)), str(int(setting.watches_growth))
    try:
        yield
    finally:
        del os.environ[DIAGNOSIS], os.environ[GROWTH]
