"""The pool against the standard library's, loky's and `multiprocessing.Pool`: calls, arrays, and how soon it starts.

- tiny calls, 2 workers: calls per second
- an array of 10 MB there and back, 2 workers: calls per second
- 4 spawned workers, a function whose module imports torch: until the first result

Every pool is there all the time, warm; they are asked in turn. Runs in: main; the start is measured by
`first_result.py`, in an interpreter of its own each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from .pool_contenders import CONTENDERS, Contender
from .pool_functions import double, square
from .probes import run_probe

OURS, STOCK = "holdfast", "concurrent.futures"
CASES = {
    "tiny calls": "calls per second",
    "10 MB array there and back": "calls per second",
    "first result, spawn, 4 workers": "seconds",
}
START = "first result, spawn, 4 workers"
WORKERS = 2
ARRAY_BYTES = 10_000_000
CALLS_AT_ONCE = 500
Tick = Callable[[str], None]


@dataclass(slots=True)
class PoolResult:
    """All figures, in the order of rounds: rates, and for the start seconds."""

    figures: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {case: {name: [] for name in CONTENDERS} for case in CASES}
    )

    def ratio(self, case: str, contender: str = OURS) -> float:
        """Return a contender's figure over the standard library's: the median over rounds of ratios within a round."""
        pairs = zip(self.figures[case][contender], self.figures[case][STOCK], strict=True)
        return median(one / other for one, other in pairs)

    def median(self, case: str, contender: str) -> float:
        """Return the median of a contender's figures."""
        return median(self.figures[case][contender])


def measure_pool(rounds: int, window_s: float, start_rounds: int, tick: Tick) -> PoolResult:
    """Measure everything; the contenders of a case in turn."""
    result = PoolResult()
    with ExitStack() as stack:
        pools = {name: stack.enter_context(make(WORKERS, "fork")) for name, make in CONTENDERS.items()}
        for case, measure in (("tiny calls", _tiny_rate), ("10 MB array there and back", _array_rate)):
            for pool in pools.values():
                measure(pool, window_s / 4)  # warm
            for number in range(rounds):
                for name, pool in _in_turn(pools, number):
                    tick(f"pool, round {number + 1} of {rounds}: {case}, {name}")
                    result.figures[case][name].append(measure(pool, window_s))
    for number in range(start_rounds):
        for name, _ in _in_turn(pools, number):
            tick(f"pool, round {number + 1} of {start_rounds}: first result, {name}")
            result.figures[START][name].append(run_probe("first_result", name, "spawn", "4")["first_result_s"])
    return result


def _in_turn(pools: dict[str, Contender], number: int) -> list[tuple[str, Contender]]:
    items = list(pools.items())
    return items if number % 2 == 0 else items[::-1]


def _tiny_rate(pool: Contender, window_s: float) -> float:
    """Calls per second, each a call of its own."""
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < window_s:
        assert sum(pool.map(square, range(CALLS_AT_ONCE))) > 0
        calls += CALLS_AT_ONCE
    return calls / elapsed


def _array_rate(pool: Contender, window_s: float) -> float:
    """One call at a time: the array there, and what was made of it back."""
    array, calls, start = np.ones(ARRAY_BYTES // 8), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < window_s or calls < 3:
        assert pool.call(double, array)[-1] == 2
        calls += 1
    return calls / elapsed
