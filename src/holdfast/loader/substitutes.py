"""Which sample takes the place of a bad one. Pure, and the same whatever the timing.

Candidates are tried in an order that depends only on seed (the epoch's) and position: first those of the same batch,
then those that the sampler gave before, then those that it gives after it. A known bad one is passed over, which gives
the same result as trying it.
Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holdfast.workers.rng import mix

NONE_LEFT: Any = object()


def choose(groups: Iterable[Sequence[Any]], is_bad: Callable[[Any], bool], seed: int, position: int) -> Any:
    """The first good candidate of the first group that has one; NONE_LEFT if there is none."""
    for number, group in enumerate(groups):
        if group:
            start = mix(mix(seed, position), number) % len(group)
            for candidate in (*group[start:], *group[:start]):
                if not is_bad(candidate):
                    return candidate
    return NONE_LEFT
