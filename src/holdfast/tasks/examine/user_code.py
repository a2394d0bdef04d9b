"""The user's code in the worker: finds the dataset, once in each worker, and describes what that code raises.

What it raises comes back as data: it may not pickle. Runs in: worker process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.diagnosis import collect
from holdfast.diagnosis.wording import error_line, one_line
from holdfast.tasks.examine.seen import Raised

Loads = Callable[[str], Any]
"""Finds MODULE:DATASET. What is wrong usage it raises without a cause, what user code raised as the cause."""

_made: dict[str, Any] = {}  # by target
_open: set[str] = set()  # what was open once it was made


def was_open(path: str) -> bool:
    """When the dataset had been made, and no sample loaded."""
    return path in _open


def find(load: Loads, target: str) -> Any:
    """The dataset; what its module or its maker raised. Wrong usage is raised."""
    if target not in _made:
        made = described(lambda: load(target), passes_on=lambda error: error.__cause__ is None)
        if isinstance(made, Raised):
            return made
        _made[target] = made
        _open.update(collect.open_files())
    return _made[target]


def needed(load: Loads, target: str) -> Any:
    """The dataset, which could be made before, in another worker perhaps."""
    dataset = find(load, target)
    if isinstance(dataset, Raised):
        raise RuntimeError(f"{target} cannot be made a second time: {dataset.what}")
    return dataset


def described(call: Callable[[], Any], passes_on: Callable[[BaseException], bool] | None = None) -> Any:
    """What the call returns, or what it raised. `passes_on`: whether an Exception is none of the user's code."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if passes_on is not None and isinstance(error, Exception) and passes_on(error):
            raise
        original = error.__cause__ if passes_on is not None and error.__cause__ is not None else error
        frames = traceback.extract_tb(original.__traceback__)
        last = next((frame for frame in reversed(frames) if not frame.filename.startswith("<frozen")), None)
        where = f"{Path(last.filename).name}:{last.lineno} in {last.name}" if last is not None else ""
        return Raised(error_line(original), one_line(where))
