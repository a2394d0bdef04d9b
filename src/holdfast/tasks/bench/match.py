"""The comparison: both loaders in turn, with each number of workers.

    for each number of workers:   the first batches of both, compared   (which warms caches up, too)
                                  torch, holdfast | holdfast, torch | ...   timed rounds, who is first changes

Both have child processes of their own, of which one has something to do at a time.

Runs in: main process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.tasks.bench.opponent import LostError, NotPlayableError, Opponent
from holdfast.tasks.bench.results import HOLDFAST, LOADERS, RAISED, TORCH, Cell, Round, Side
from holdfast.words import plural

COMPARED_BATCHES = 16
_COMPARE_S = 4.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared, and for how long."""

    workers: tuple[int, ...]
    rounds: int
    round_s: float
    patience_s: float
    """How much longer than that a loader may take to answer, before it is taken for one that hangs."""
    ends_hung_samples: bool = False
    """Whether our workers have a sample_timeout."""

    @property
    def steps(self) -> int:
        """How often `tell` is called."""
        return len(self.workers) * len(LOADERS) * (1 + self.rounds)


@dataclass(slots=True)
class _SideSoFar:
    """One loader with one number of workers, while it plays."""

    rounds: list[Round] = field(default_factory=list)
    failures: int = 0
    first_failures: list[str] = field(default_factory=list)
    ended: str | None = None
    memory_bytes: int | None = None
    digests: list[str] = field(default_factory=list)

    def heard(self, answer: Mapping[str, Any]) -> None:
        self.failures += answer["failures"]
        self.first_failures += answer["first_failures"]
        self.ended = answer["ended"]
        self.digests = answer.get("digests", self.digests)
        self.memory_bytes = answer.get("memory_bytes") or self.memory_bytes
        if answer.get("first_batch_s") is not None:
            self.rounds.append(Round(**{each.name: answer[each.name] for each in fields(Round)}))

    def side(self) -> Side:
        told = tuple(dict.fromkeys(self.first_failures))[:3]
        return Side(tuple(self.rounds), self.failures, told, self.ended, self.memory_bytes)


class Match:
    """Of two loaders, each in a process of its own. `tell` is told what begins."""

    def __init__(self, plan: Plan, opponents: Mapping[str, Opponent], tell: Tell) -> None:
        self._plan, self._opponents, self._tell = plan, opponents, tell
        self._hung_with: dict[str, int] = {}

    def run(self) -> list[Cell]:
        """One cell for each number of workers."""
        for opponent in self._opponents.values():
            opponent.begin()
        for opponent in self._opponents.values():
            opponent.ready()
        return [self._cell(workers) for workers in self._plan.workers]

    def _cell(self, workers: int) -> Cell:
        sides = {name: _SideSoFar(ended=self._why_not(name, workers)) for name in LOADERS}
        compare = {"do": "compare", "workers": workers, "batches": COMPARED_BATCHES, "seconds": _COMPARE_S}
        for name in LOADERS:
            self._play(name, sides[name], compare, "comparing")
        is_random = self._is_random(sides, compare)
        for number in range(self._plan.rounds):
            is_last = number == self._plan.rounds - 1
            timed = {"do": "time", "workers": workers, "seconds": self._plan.round_s, "memory": is_last}
            for name in LOADERS if number % 2 == 0 else reversed(LOADERS):
                self._play(name, sides[name], timed, "timing")
        compared = _pairs(sides)
        return Cell(
            workers,
            sides[TORCH].side(),
            sides[HOLDFAST].side(),
            compared=len(compared),
            equal=sum(theirs == ours for theirs, ours in compared),
            is_random=is_random,
        )

    def _play(self, name: str, side: _SideSoFar, order: dict[str, Any], what: str) -> None:
        self._tell(f"{what} {name}, {plural(order['workers'], 'worker')}")
        if side.ended is not None:
            return
        try:
            answer = self._opponents[name].ask(order, order["seconds"] + self._plan.patience_s)
        except LostError as lost:
            side.ended = str(lost)
            if lost.is_hang:
                self._hung_with[name] = order["workers"]
            return
        if answer["refused"] is not None:
            raise NotPlayableError(f"{name}'s DataLoader refuses these arguments: {answer['refused']}")
        side.heard(answer)

    def _why_not(self, name: str, workers: int) -> str | None:
        """A loader that hung will hang again; ours not where workers can be ended, and there were none."""
        hung_with = self._hung_with.get(name)
        if hung_with is None or (name == HOLDFAST and self._plan.ends_hung_samples and hung_with == 0 < workers):
            return None
        return f"not tried: it hung with {plural(hung_with, 'worker')}"

    def _is_random(self, sides: Mapping[str, _SideSoFar], order: dict[str, Any]) -> bool:
        """Asked only where batches differ: whether torch's differ from its own."""
        if all(theirs == ours for theirs, ours in _pairs(sides)) or sides[TORCH].ended is not None:
            return False
        again = _SideSoFar()
        self._play(TORCH, again, order, "comparing")
        return any(first != second for first, second in zip(sides[TORCH].digests, again.digests, strict=False))


def _pairs(sides: Mapping[str, _SideSoFar]) -> list[tuple[str, str]]:
    """As many as both have; where torch's loader ended, as many as it got before that.

    What a worker had sent is lost when it dies: torch's loader raises at each such batch, before it says that.
    """
    pairs = list(zip(sides[TORCH].digests, sides[HOLDFAST].digests, strict=False))
    if sides[TORCH].ended is None:
        return pairs
    return list(itertools.takewhile(lambda pair: not pair[0] == RAISED != pair[1], pairs))
