"""The result of a run as data: what was measured, and which target was met or missed.

Runs in: main.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from .graph import LEAST_TO, LEAST_TO_ONE, GraphResult
from .graph import MOST_ADDED_BYTES as MOST_ADDED_BY_GRAPH
from .machine import Machine
from .measure import RowResult
from .memory import TARGET, MemoryResult
from .option_costs import SETTINGS, OptionResult, Setting
from .pool import START as POOL_START
from .pool import PoolResult
from .sharing import MOST_ADDED_BYTES, MOST_OF_PICKLED, MOST_OF_PLAIN, SharingResult
from .startup import StartupResult
from .supervision import MOST_SHARE, SupervisionResult


@dataclass(frozen=True, slots=True)
class Target:
    """One figure against its limit, at least or at most: a ratio to torch's loader or to another figure, or a size."""

    what: str
    value: float
    limit: float
    at_least: bool
    to: str = "torch's"
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of its limit."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        """Return figure and limit in one line."""
        bound = "at least" if self.at_least else "at most"
        return f"{self.what}: {self.value:.3g}{self.unit} {self.to}, target {bound} {self.limit:.3g}{self.unit}"


@dataclass(slots=True)
class Report:
    """Everything one run measured; `broken` names what could not be measured, with the error."""

    machine: Machine
    rounds: int
    rows: list[RowResult] = field(default_factory=list)
    options: list[OptionResult] = field(default_factory=list)
    startup: list[StartupResult] = field(default_factory=list)
    memory: list[MemoryResult] = field(default_factory=list)
    supervision: list[SupervisionResult] = field(default_factory=list)
    sharing: SharingResult | None = None
    graph: GraphResult | None = None
    pool: PoolResult | None = None
    broken: list[str] = field(default_factory=list)

    def targets(self) -> list[Target]:
        """Return every target of what was measured."""
        return [
            *self._row_targets(),
            *self._option_targets(),
            *map(startup_target, self.startup),
            *map(memory_target, self.memory),
            *map(supervision_target, self.supervision),
            *(sharing_targets(self.sharing) if self.sharing is not None else ()),
            *(graph_targets(self.graph) if self.graph is not None else ()),
            *(pool_targets(self.pool) if self.pool is not None else ()),
        ]

    def missed(self) -> list[Target]:
        """Return the targets that were missed."""
        return [target for target in self.targets() if not target.met]

    def _row_targets(self) -> Iterator[Target]:
        for row in self.rows:
            for workers in row.worker_counts():
                yield row_target(row, workers)

    def _option_targets(self) -> Iterator[Target]:
        for row in self.options:
            for setting in SETTINGS:
                if setting.most_cpu is not None:
                    yield option_cpu_target(row, setting)
                    yield option_rate_target(row, setting)


def row_target(row: RowResult, workers: int) -> Target:
    """Return the throughput target of a row with so many workers."""
    what = f"{row.workload.name}, {workers} workers, batches per second"
    return Target(what, row.ratio(workers), row.workload.target(workers), at_least=True)


def option_cpu_target(row: OptionResult, setting: Setting) -> Target:
    """Return the target of the CPU time per batch that a row takes with a setting."""
    what, most = f"{row.workload.name} with {setting.name}, CPU time per batch", setting.most_cpu or math.inf
    return Target(what, row.cpu_ratio(setting.name), most, at_least=False, to="the time without it")


def option_rate_target(row: OptionResult, setting: Setting) -> Target:
    """Return the target of a row's throughput with a setting: no lower, beyond the noise of this run."""
    what = f"{row.workload.name} with {setting.name}, batches per second"
    return Target(what, row.rate_ratio(setting.name), row.least_rate_ratio, at_least=True, to="the rate without it")


def startup_target(case: StartupResult) -> Target:
    """Return the first-batch target of a case."""
    return Target(f"first batch, {case.method}, {case.workers} workers", case.ratio, case.target, at_least=False)


def memory_target(case: MemoryResult) -> Target:
    """Return the memory target of a case."""
    return Target(f"memory per worker, {case.method}, {case.row}", case.ratio, TARGET, at_least=False)


def supervision_target(case: SupervisionResult) -> Target:
    """Return the target of the supervisor's CPU time."""
    what = f"supervisor of {case.workers} workers, {case.title}, CPU time"
    return Target(what, case.share, MOST_SHARE, at_least=False, to="one core")


def sharing_targets(result: SharingResult) -> list[Target]:
    """Return the targets of share()."""
    limit = MOST_ADDED_BYTES / 1e6
    sizes = [
        Target(f"1 GB shared, {method}, added", added / 1e6, limit, at_least=False, to="per worker", unit=" MB")
        for method, added in result.added_bytes.items()
    ]
    strings, start = result.string_ratio("ours, shared"), result.start_ratio("ours, shared")
    return [
        *sizes,
        Target(
            "strings, shared, memory per worker", strings, MOST_OF_PLAIN, at_least=False, to="torch's on the plain list"
        ),
        Target("spawned workers with 1 GB shared, start", start, MOST_OF_PICKLED, at_least=False, to="ours, pickled"),
    ]


def graph_targets(result: GraphResult) -> list[Target]:
    """Return the targets of neighbour sampling; DGL's only where there is one."""
    rates = [
        Target(f"sampling in one process, against {name}", result.ratio_to(name), least, at_least=True, to=f"{name}'s")
        for name, least in LEAST_TO.items()
        if name in result.one_process
    ]
    limit = MOST_ADDED_BY_GRAPH / 1e6
    return [
        *rates,
        Target("sampling with 2 workers", result.worker_ratio(), LEAST_TO_ONE, at_least=True, to="one process"),
        *(
            Target(f"graph, {method}, added", added / 1e6, limit, at_least=False, to="per worker", unit=" MB")
            for method, added in result.added_bytes.items()
        ),
    ]


def pool_targets(result: PoolResult) -> list[Target]:
    """Return the targets of the pool, all against the standard library's."""
    least = {"tiny calls": 1.0, "10 MB array there and back": 3.0}
    rates = [
        Target(f"pool, {case}, calls per second", result.ratio(case), limit, at_least=True, to="concurrent.futures'")
        for case, limit in least.items()
    ]
    start = Target(f"pool, {POOL_START}", result.ratio(POOL_START), 0.5, at_least=False, to="concurrent.futures'")
    return [*rates, start]


def as_json(report: Report) -> dict[str, Any]:
    """Return the run as plain data: every pass of every round, and the targets."""
    return {
        "machine": asdict(report.machine),
        "rounds": report.rounds,
        "rows": [_row_as_json(row) for row in report.rows],
        "options": [_option_as_json(row) for row in report.options],
        "startup": [asdict(case) for case in report.startup],
        "memory": [asdict(case) for case in report.memory],
        "supervision": [asdict(case) for case in report.supervision],
        "sharing": report.sharing and asdict(report.sharing),
        "graph": report.graph and asdict(report.graph),
        "pool": report.pool and asdict(report.pool),
        "targets": [{**asdict(target), "met": target.met} for target in report.targets()],
        "broken": report.broken,
    }


def _option_as_json(row: OptionResult) -> dict[str, Any]:
    passes = {name: [{**asdict(one), "rate": one.rate} for one in measured] for name, measured in row.passes.items()}
    return {"name": row.workload.name, "noise": row.noise, "settings": passes}


def _row_as_json(row: RowResult) -> dict[str, Any]:
    passes = [
        {**asdict(contender), "passes": [{**asdict(one), "rate": one.rate} for one in measured]}
        for contender, measured in row.passes.items()
    ]
    return {"name": row.workload.name, "title": row.workload.title, "contenders": passes}
