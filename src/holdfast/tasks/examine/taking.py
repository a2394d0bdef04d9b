"""Loads samples in the worker: once, again to compare, and where they differ twice more with equal seeds.

Each is a call of its own, with its own limit of time. Runs in: worker process.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from holdfast.diagnosis.wording import one_line
from holdfast.tasks.examine import equality
from holdfast.tasks.examine.seen import Raised, Sample
from holdfast.tasks.examine.user_code import Loads, described, needed
from holdfast.tasks.measuring import measured

Which = int | range
"""The index of a sample, or how many of the first ones of an iterable dataset."""

_SEED = 20_240_229
_held: dict[Which, list[Any]] = {}  # the samples that were loaded last


def take(load: Loads, target: str, which: Which) -> list[Sample] | Raised:
    """Load samples, and keep them to compare with."""
    _held.clear()
    loaded: list[_Loaded] | Raised = described(lambda: list(_loaded(needed(load, target), which)))
    if isinstance(loaded, Raised):
        return loaded
    _held[which] = [one.value for one in loaded]
    return [
        Sample(
            index=one.index,
            what=one_line(equality.describe(one.value), 200),
            seconds=one.seconds,
            again_s=one.seconds,
            nbytes=equality.size(one.value),
            peak_bytes=one.peak_bytes,
            has_cuda=equality.has_cuda(one.value),
        )
        for one in loaded
    ]


def take_again(load: Loads, target: str, which: Which, samples: list[Sample]) -> list[Sample] | Raised:
    """The same samples, once more: do they differ?"""
    loaded: list[_Loaded] | Raised = described(lambda: list(_loaded(needed(load, target), which)))
    if isinstance(loaded, Raised):
        return loaded
    return [
        replace(sample, again_s=one.seconds, differs_at=one_line(equality.difference(value, one.value) or "", 120))
        for sample, one, value in zip(samples, loaded, _held.get(which, ()), strict=False)
    ]


def take_seeded(load: Loads, target: str, which: Which, samples: list[Sample]) -> list[Sample] | Raised:
    """Twice more, with equal seeds: do they still differ?"""
    twice: list[list[_Loaded]] | Raised = described(lambda: [_seeded(needed(load, target), which) for _ in range(2)])
    if isinstance(twice, Raised):
        return twice
    differ = [equality.difference(one.value, other.value) is not None for one, other in zip(*twice, strict=False)]
    return [replace(sample, differs_seeded=differs) for sample, differs in zip(samples, differ, strict=False)]


def _seeded(dataset: Any, which: Which) -> list[_Loaded]:
    _seed()
    return list(_loaded(dataset, which))


@dataclass(frozen=True, slots=True)
class _Loaded:
    index: int
    value: Any
    seconds: float
    peak_bytes: int | None


def _loaded(dataset: Any, which: Which) -> Iterator[_Loaded]:
    if isinstance(which, int):
        yield _Loaded(which, *measured(lambda: dataset[which]))
        return
    iterator: Any = None

    def element() -> Any:
        nonlocal iterator
        iterator = iter(dataset) if iterator is None else iterator
        return next(iterator)

    for index in which:
        try:
            yield _Loaded(index, *measured(element))
        except StopIteration:
            return


def _seed() -> None:
    random.seed(_SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(_SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(_SEED)
