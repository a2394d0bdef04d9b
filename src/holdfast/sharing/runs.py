"""Runs of numbers in a segment, and the form of items that is made of them: what a handle says about a list or dict.

Runs in: any process.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from holdfast.sharing.builder import Builder
from holdfast.sharing.segment import Array, SharedSegment


class Run(NamedTuple):
    """Numbers of one type, one behind the other."""

    start: int
    length: int
    code: str  # as in the modules struct and array


class Kind(enum.IntEnum):
    """How items lie in a segment."""

    NUMBERS = 0
    STR = 1
    BYTES = 2
    PICKLES = 3


class ItemsForm(NamedTuple):
    """Items in a segment. What the runs are depends on the kind: see `items.py` and `pickles.py`."""

    kind: Kind
    length: int
    runs: tuple[Run, ...]


def write_run(numbers: Any, code: str, builder: Builder) -> Run:
    return Run(builder.write(numbers), len(numbers), code)


def write_integers(numbers: Array, builder: Builder) -> Run:
    """Numbers from 0 on, in four bytes each where that is enough."""
    code = "I" if not len(numbers) or int(numbers.max()) < 1 << 32 else "Q"
    return write_run(numbers.astype(np.dtype(code)), code, builder)


def read_run(segment: SharedSegment, run: Run) -> memoryview:
    nbytes = run.length * np.dtype(run.code).itemsize
    code: Any = run.code
    return segment.view[run.start : run.start + nbytes].cast(code)
