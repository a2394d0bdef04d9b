"""How many samples a worker is given at a time: as many as take a moment.

Few where samples are slow, so that progress is seen, and that a crash costs few others a second load. Many where they
are quick, so that handing them out does not take longer than loading them. Pure.

Runs in: main process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

_MOMENT_S = 0.1
_MOST = 256


class Batches:
    """A batch sampler over some indices, once. It begins with single samples and goes by what it is told of them."""

    def __init__(self, indices: Iterable[int], most: int = _MOST) -> None:
        self._indices = indices
        self._most = most
        self._size = 1

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self._indices)
        while batch := list(itertools.islice(indices, self._size)):
            yield batch

    def took(self, samples: int, seconds: float) -> None:
        """A batch has come. The next ones are at most twice as large: the first samples say little."""
        if samples:
            wanted = int(_MOMENT_S * samples / max(seconds, 1e-9))
            self._size = max(1, min(wanted, 2 * self._size, self._most))
