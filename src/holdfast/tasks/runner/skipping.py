"""Whose bad samples `--skipped-file` is about. A script has several datasets, and the file is of one.

It belongs to the first dataset whose length is that of the file, or to the first at all where there is no file yet,
for as long as that dataset lives. Sample 17 of another dataset must not be passed over because of it: loaders of
others do without a file, and a warning says so of each.

Runs in: the script's process, and those it starts.
"""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastWarning
from holdfast.loader.skips import special_kind


class SkippedFileOwner:
    """Which dataset has the file."""

    def __init__(self) -> None:
        self._owner: Callable[[], Any] = lambda: None

    def may_use(self, path: str, dataset: Any) -> bool:
        owner = self._owner()
        if owner is None and _length_in(path) in (None, _length(dataset)):
            self._owner = _reference(dataset)
            return True
        if owner is not dataset:
            this = _named(dataset)
            message = f"skipped_file={path!r} is of another dataset than {this}, whose bad samples are not kept"
            warnings.warn(message, HoldfastWarning, stacklevel=5)  # of who makes the loader: said once there
        return owner is dataset


def _reference(dataset: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(dataset)
    except TypeError:  # a list, say
        return lambda: dataset


def _named(dataset: Any) -> str:
    """With its length: a script may have several of a class, and Python says the same at the same place once."""
    length = _length(dataset)
    return f"this {type(dataset).__name__}" + ("" if length is None else f" of length {length}")


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _length_in(path: str) -> int | None:
    """Of the dataset that the file is about; None: there is no file yet, or the loader will say what is wrong."""
    if special_kind(path) is not None:
        return None  # to open a FIFO may wait for ever
    try:
        with Path(path).open("rb") as file:
            length = json.loads(file.readline(4096)).get("dataset_length")
    except (OSError, ValueError, AttributeError):
        return None
    return length if isinstance(length, int) else None
