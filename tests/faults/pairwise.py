"""A small set of rows in which every pair of values that goes together at all occurs at least once. Deterministic.

Runs in: the test process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from typing import TypeVar
from zlib import crc32

Row = TypeVar("Row", bound=tuple[Hashable, ...])
Pair = tuple[tuple[int, Hashable], tuple[int, Hashable]]


def pairs_of(row: tuple[Hashable, ...]) -> list[Pair]:
    """Every two columns of the row, with their values."""
    return list(combinations(enumerate(row), 2))


def pairwise(rows: Iterable[Row], cost: Callable[[Row], float]) -> list[Row]:
    """Greedy: take the rarest pair that is still missing, and the row with it that brings most others for its cost.

    Among equals one that depends on the row alone, but on all of it: the first would mostly have the first values.
    """
    having: dict[Pair, list[Row]] = {}
    for row in rows:
        for pair in pairs_of(row):
            having.setdefault(pair, []).append(row)
    rarity = Counter({pair: len(found) for pair, found in having.items()})
    missing = dict.fromkeys(sorted(having, key=rarity.__getitem__))
    chosen: list[Row] = []
    while missing:
        rarest = next(iter(missing))
        best = max(having[rarest], key=lambda row: (_gain(row, missing) / cost(row), crc32(repr(row).encode())))
        chosen.append(best)
        for pair in pairs_of(best):
            missing.pop(pair, None)
    return chosen


def _gain(row: tuple[Hashable, ...], missing: dict[Pair, None]) -> int:
    return sum(pair in missing for pair in pairs_of(row))
