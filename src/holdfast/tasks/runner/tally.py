"""The loaders of this process: what each has counted, kept after the loader is gone.

A script may make a loader for every step: of those that are gone only the sums are kept.

Runs in: the script's process, and those it starts.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections import Counter
from typing import Any

from holdfast.incident import Incidents
from holdfast.tasks.runner.figures import Figures


class Tally:
    """All loaders that were asked for an iterator."""

    def __init__(self) -> None:
        self._gone = Figures()
        self._living: dict[int, tuple[int, Any, Counter[str]]] = {}

    def note(self, num_workers: int, counters: Any, incidents: Incidents) -> None:
        """With every iterator. Its incidents say whether it lives: an iterator has them too, and may outlive it."""
        key = id(incidents)
        if key not in self._living:
            self._living[key] = num_workers, counters, incidents.counts
            weakref.finalize(incidents, self._fold, key).atexit = False

    def read(self) -> Figures:
        figures = copy.deepcopy(self._gone)
        for entry in [*self._living.values()]:
            _add(figures, *entry)
        return figures

    def _fold(self, key: int) -> None:
        _add(self._gone, *self._living.pop(key))


def _add(figures: Figures, num_workers: int, counters: Any, causes: Counter[str]) -> None:
    figures.add(num_workers, dataclasses.asdict(counters.read()), causes)


TALLY = Tally()
