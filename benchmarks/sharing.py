"""share(): what it saves in memory, what reading through it costs, and how soon workers start with it.

- 1 GB array, 4 workers that look at all of it: unique memory added to each, against workers that hold nothing
- 5 million short strings, the same: torch's loader and ours on the plain list, ours on the shared one
- one item of a list by its index, plain against shared
- 4 spawned workers with 1 GB: until each has given a batch, shared against pickled

Runs in: main; workers are measured by `shared_workers.py`, in an interpreter of its own each time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .probes import run_probe

METHODS = ("fork", "spawn", "forkserver", "portable")
QUICK_METHODS = METHODS[:1]
MOST_ADDED_BYTES = 5_000_000
MOST_OF_PLAIN = 0.1
"""Most of the unique memory of torch's workers with the plain list that ours may have with the shared one."""
MOST_OF_PICKLED = 0.5
"""Most of the time with pickled data that starting with shared data may take."""
LISTED = 1_000_000
LOOKS = 100_000
STRING_CONTENDERS: dict[str, tuple[str, str]] = {
    "torch, plain": ("torch", "plain"),
    "ours, plain": ("holdfast", "plain"),
    "ours, shared": ("holdfast", "shared"),
}
START_CONTENDERS: dict[str, tuple[str, str]] = {
    "torch, pickled": ("torch", "plain"),
    "ours, pickled": ("holdfast", "plain"),
    "ours, shared": ("holdfast", "shared"),
}
KINDS: dict[str, Callable[[int], Any]] = {
    "integers": lambda index: index,
    "short strings": lambda index: f"{index:016x}.jpg",
    "(path, label) tuples": lambda index: (f"{index:016x}.jpg", index % 1000),
}
Tick = Callable[[str], None]


@dataclass(slots=True)
class SharingResult:
    """All figures; times in the order of rounds. Memory is measured once: it does not depend on other work."""

    added_bytes: dict[str, float] = field(default_factory=dict)
    """By start method: what a shared array of 1 GB adds to a worker."""
    string_bytes: dict[str, float] = field(default_factory=dict)
    """By contender: unique memory of a worker that has looked at every string."""
    look_s: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """By kind of item, plain and shared: one item."""
    start_s: dict[str, list[float]] = field(default_factory=dict)
    """By contender: until every one of 4 spawned workers has given a batch."""

    def string_ratio(self, contender: str) -> float:
        """Return the memory of a contender over that of torch's workers with the plain list."""
        return self.string_bytes[contender] / self.string_bytes["torch, plain"]

    def look_ratio(self, kind: str) -> float:
        """Return the time of a shared list over that of a plain one."""
        return _ratio(self.look_s[kind]["shared"], self.look_s[kind]["plain"])

    def start_ratio(self, contender: str) -> float:
        """Return the time of a contender over that of our loader with pickled data."""
        return _ratio(self.start_s[contender], self.start_s["ours, pickled"])


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over rounds of ratios within a round."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def measure_sharing(is_quick: bool, rounds: int, tick: Tick) -> SharingResult:
    """Measure everything; the contenders of a row in turn."""
    result = SharingResult()
    for method in QUICK_METHODS if is_quick else METHODS:
        tick(f"sharing: 1 GB, {method}")
        result.added_bytes[method] = _added_bytes(method)
    for name, (loader, how) in STRING_CONTENDERS.items():
        tick(f"sharing: strings, {name}")
        result.string_bytes[name] = run_probe("shared_workers", loader, "fork", "strings", how, "--touch")[
            "worker_bytes"
        ]
    for kind, make in KINDS.items():
        tick(f"sharing: one item, {kind}")
        result.look_s[kind] = _look_times(make, rounds)
    result.start_s = {name: [] for name in START_CONTENDERS}
    for number in range(rounds):
        for name, (loader, how) in START_CONTENDERS.items():
            tick(f"sharing, round {number + 1} of {rounds}: start, {name}")
            result.start_s[name].append(run_probe("shared_workers", loader, "spawn", "array", how)["start_s"])
    return result


def _added_bytes(method: str) -> float:
    having, lacking = (
        run_probe("shared_workers", "holdfast", method, data, "shared", "--touch")["worker_bytes"]
        for data in ("array", "nothing")
    )
    return having - lacking


def _look_times(make: Callable[[int], Any], rounds: int) -> dict[str, list[float]]:
    """Seconds for one item, in random order, plain and shared in turn."""
    import holdfast

    plain = [make(index) for index in range(LISTED)]
    contenders = {"plain": plain, "shared": holdfast.share(plain)}
    indices = random.Random(0).sample(range(LISTED), LOOKS)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, items in contenders.items():
            times[name].append(_time_of_looks(items, indices))
    return times


def _time_of_looks(items: Any, indices: list[int]) -> float:
    start = time.perf_counter()
    for index in indices:
        items[index]
    return (time.perf_counter() - start) / len(indices)
