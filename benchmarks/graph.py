"""Neighbour sampling: 1M nodes, 20M edges, fanout [15, 10], batches of 1024 seeds.

- in one process, on one thread: ours against numpy and against DGL, in batches per second of CPU time
- through the loader: two workers against none
- unique memory added to a worker, against one whose loader has no graph

DGL 1.1.3 is in a folder of its own, put there by `make bench` with `--no-deps`: newer ones do not go with this torch.
Runs in: main; everything is measured by probes, in an interpreter of its own each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .probes import run_probe

METHODS = ("fork", "spawn", "forkserver")
QUICK_METHODS = METHODS[:1]
DGL_FOLDER = Path(".venv-dgl")
LEAST_TO = {"numpy": 4.0, "DGL": 2.0}
LEAST_TO_ONE = 1.6
MOST_ADDED_BYTES = 5_000_000
BATCHES = 40
Tick = Callable[[str], None]


@dataclass(slots=True)
class GraphResult:
    """All rates, in the order of rounds; memory is measured once."""

    one_process: dict[str, list[float]] = field(default_factory=dict)
    loader: dict[str, list[float]] = field(default_factory=dict)
    no_dgl: str = ""
    """Why DGL was not measured; nothing if it was."""
    added_bytes: dict[str, float] = field(default_factory=dict)
    """By start method: memory of a worker beyond that of one without a graph."""

    def ratio_to(self, other: str) -> float:
        """Return our rate in one process over another's."""
        return _ratio(self.one_process["ours"], self.one_process[other])

    def worker_ratio(self) -> float:
        """Return the rate with two workers over that without."""
        return _ratio(self.loader["2 workers"], self.loader["one process"])


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over rounds of ratios within a round."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def measure_graph(is_quick: bool, rounds: int, tick: Tick) -> GraphResult:
    """Measure everything."""
    tick("graph: rates")
    rates = run_probe("graph_rates", str(rounds), str(BATCHES), environment=_environment())
    result = GraphResult(rates["one_process"], rates["loader"], rates["no_dgl"])
    for method in QUICK_METHODS if is_quick else METHODS:
        tick(f"graph: memory, {method}")
        having, lacking = (run_probe("graph_memory", method, what)["worker_bytes"] for what in ("graph", "nothing"))
        result.added_bytes[method] = having - lacking
    return result


def _environment() -> dict[str, str]:
    """One thread for everyone; DGL where `make bench` puts it, with nothing to ask or to write in the user's home."""
    found = [str(DGL_FOLDER.absolute()), *filter(None, [os.environ.get("PYTHONPATH")])]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found), "DGLBACKEND": "pytorch", **one_thread}
