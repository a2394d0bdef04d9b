"""Raising, in the user's loop, what was raised elsewhere: once or again, and without keeping the iterator alive.

Runs in: main process.
"""

from __future__ import annotations

from typing import NoReturn

from holdfast.incident import Incident
from holdfast.workers.failures import Failure, add_note, rebuild
from holdfast.workers.losses import attach


def raise_again(error: BaseException) -> NoReturn:
    """An error that is kept must not keep the frames of the last time, which hold the iterator."""
    try:
        raise error.with_traceback(None)
    finally:
        del error  # its traceback holds this frame


def raise_failure(failure: Failure, noted: Incident, note: str = "") -> NoReturn:
    """What a worker raised, as the same type where that can be."""
    error = _no_stop_iteration(rebuild(failure))
    attach(error, noted)
    if note:
        add_note(error, note)
    if noted.id and noted.sample_index is not None:
        add_note(error, f"holdfast replay {noted.id}   load this sample alone, under the same limits")
    try:
        raise error
    finally:
        del error  # its traceback holds this frame


def _no_stop_iteration(error: BaseException) -> BaseException:
    """Raised from `next()` it would end the epoch without a word."""
    if not isinstance(error, StopIteration):
        return error
    replacement = RuntimeError(f"{type(error).__name__} was raised in a DataLoader worker: {error}")
    replacement.__cause__ = error
    for note in getattr(error, "__notes__", ()):
        replacement.add_note(note)
    return replacement
