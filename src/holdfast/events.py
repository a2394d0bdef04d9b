"""Who is told of incidents: the log, the counts, and whoever asked with `on_incident`.

    loader, pool, spawn ──► Teller.tell(incident) ──► incident_log.py, counted.py, callbacks of the user's

- What a callback raises is contained and said: an alert that fails must not end the training it watches. Only what is
  meant for the user gets through: an interrupt, and what his own signal handlers raise.
- A callback belongs to the process that asked: forked children, such as workers, do not call it.

Standard library only. Runs in: main process, in the thread that notes the incident.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from holdfast import counted, signal_handlers
from holdfast.errors import HoldfastWarning
from holdfast.incident import Incident
from holdfast.incident_log import IncidentLog

_log = logging.getLogger(__name__)

Callback = Callable[[Incident], object]


class _Subscription:
    """One call of `on_incident`: the same callback may be there twice."""

    __slots__ = ("callback", "has_failed", "pid")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.has_failed = False
        self.pid = os.getpid()


_subscriptions: list[_Subscription] = []  # added, removed and copied in single steps: threads need no lock


def on_incident(callback: Callback) -> Callable[[], None]:
    """Call `callback` with every `Incident` of this process from now on. Returns a function that ends that.

    It is told of all loaders, pools and `spawn()`s, after the worker was replaced and the incident is in the record. It
    is called in the thread that waits for a batch, or the pool's own: a slow one delays what that thread does, and it
    must not wait for results of the same loader or pool. What it raises is contained: a warning and the log say so,
    and it is called again for the next.

    Not for use as a decorator: the name would stand for what ends it.
    """
    if not callable(callback):
        raise TypeError(f"on_incident: callback must be a function that takes an Incident, not {callback!r:.200}")
    subscription = _Subscription(callback)
    _subscriptions.append(subscription)

    def end() -> None:
        """Call it no more. To end again does nothing."""
        with contextlib.suppress(ValueError):
            _subscriptions.remove(subscription)

    return end


class Teller:
    """Tells of what goes wrong in one loader, pool or group of ranks. A copy of it has told nothing yet."""

    def __init__(self, front: str) -> None:
        """`front`: as in `counted.py`."""
        self._front = front
        self._log = IncidentLog(front)

    def tell(self, incident: Incident) -> None:
        counted.note(self._front, incident)
        self._log.note(incident)
        for subscription in list(_subscriptions):
            if subscription.pid == os.getpid():
                _call(subscription, incident)

    def end(self) -> None:
        """The owner is closed: have the log sum up."""
        self._log.end()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._front,)


def _call(subscription: _Subscription, incident: Incident) -> None:
    try:
        subscription.callback(incident)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if signal_handlers.have_raised(error):
            raise
        _say(subscription, error)


def _say(subscription: _Subscription, error: BaseException) -> None:
    """As text: who keeps a traceback, as some log handlers do, keeps the loader and its workers."""
    callback, text = subscription.callback, "".join(traceback.format_exception(error))
    name = getattr(callback, "__qualname__", type(callback).__qualname__)
    is_first, subscription.has_failed = not subscription.has_failed, True
    try:
        level = logging.ERROR if is_first else logging.DEBUG
        _log.log(level, "callback failed: %s\n%s", name, text, extra={"callback": name})
        if is_first:
            said = traceback.format_exception_only(error)[-1].strip()
            message = f"on_incident: {name} raised {said}; it is called again for the next incident"
            warnings.warn(message, HoldfastWarning, stacklevel=4)
    except Exception:  # of a log handler of the user's, or because warnings are errors: this one is not to be one
        sys.stderr.write(text)
