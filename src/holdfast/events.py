"""Who is told of incidents: users' callbacks, the metrics, whatever else listens.

What a callback raises is said once and contained: an alert that fails must not end the training it watches.

Standard library only. Runs in: main process, in the thread that notes the incident.
"""

from __future__ import annotations

import logging
import os
import traceback
import warnings
from collections.abc import Callable

from holdfast.errors import HoldfastWarning
from holdfast.incident import Incident

_log = logging.getLogger(__name__)

Callback = Callable[[Incident], object]

_callbacks: list[Callback] = []
_owner_pid = os.getpid()
_has_failed: set[int] = set()


def on_incident(callback: Callback) -> Callable[[], None]:
    """Call `callback` with every incident of this process from now on. Returns a function that ends that.

    It is called in the thread that calls `next()`, or that has the pool: a slow one delays it.
    """
    if not callable(callback):
        raise TypeError(f"on_incident: callback must be callable, taking an Incident, not {type(callback).__name__}")
    _callbacks.append(callback)

    def end() -> None:
        if callback in _callbacks:
            _callbacks.remove(callback)

    return end


def tell(incident: Incident) -> None:
    """Tell everybody. In a forked child nobody: its callbacks belong to its parent."""
    if os.getpid() != _owner_pid:
        return
    for callback in [*_callbacks]:
        try:
            callback(incident)
        except Exception as error:
            _say_once(callback, error)


def _say_once(callback: Callback, error: Exception) -> None:
    _log.error("callback failed", exc_info=error)
    if id(callback) in _has_failed:
        return
    _has_failed.add(id(callback))
    name = getattr(callback, "__qualname__", type(callback).__name__)
    where = traceback.format_exception_only(error)[-1].strip()
    message = f"on_incident: {name} raised {where}; it is called again for the next incident"
    warnings.warn(message, HoldfastWarning, stacklevel=3)
