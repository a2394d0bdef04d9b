"""What the log says of incidents: the first of each cause in full, then how many there are.

    WARNING  incident: DataLoader: worker 1 was killed by SIGKILL while loading sample 17 (...): retried (7f3a.1);
             more of this cause are only counted
    DEBUG    incident: DataLoader: worker 0 ...                    every further one of that cause
    WARNING  incidents so far: DataLoader: 10 (hang: 9, ...)       at 10, 100, 1000 and so on
    WARNING  incidents in all: DataLoader: 37 (hang: 31, ...)      at the end, if there were more than have been told

Who has set nothing up for logging sees nothing; who has sees a handful of lines, however many samples are bad. The
format of a record (`record.msg`) begins with the name of the event, which stays the same; the facts are its `extra`.

Standard library only. Runs in: main process, in the thread that notes the incident.
"""

from __future__ import annotations

import logging
import os
import traceback
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.incident import Incident

logging.getLogger("holdfast").addHandler(logging.NullHandler())  # or Python would print warnings on stderr by itself
_log = logging.getLogger(__name__)
_MOST_CAUSES = 100  # of which each has a warning of its own


class IncidentLog:
    """Of one loader, pool or group of ranks. A copy of it has told nothing yet."""

    def __init__(self, front: str) -> None:
        """`front`: as in `counted.py`."""
        self._front = front
        self._story = _Story(front)
        self._ending: weakref.finalize[..., IncidentLog] | None = None  # once there is something to sum up

    def note(self, incident: Incident) -> None:
        if self._ending is None:
            self._ending = weakref.finalize(self, self._story.end)
        self._story.note(incident)

    def end(self) -> None:
        """Sum up. What comes after this is counted anew."""
        if self._ending is not None:
            self._ending()
        self._story, self._ending = _Story(self._front), None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._front,)


class _Story:
    """What has been counted, and how much of it has been told."""

    def __init__(self, front: str) -> None:
        self._front = front
        self._owner_pid = os.getpid()
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._told = 0

    def note(self, incident: Incident) -> None:
        cause = incident.cause_name
        is_first = cause not in self._counts and len(self._counts) < _MOST_CAUSES
        self._total += 1
        self._counts[cause] += 1
        if is_first:
            self._told += 1
            self._tell_one(logging.WARNING, incident, "; more of this cause are only counted")
            return
        self._tell_one(logging.DEBUG, incident)
        if _is_power_of_ten(self._total):
            self._tell_sum("incidents so far: %s: %s")

    def end(self) -> None:
        """Also at exit, and when the owner is garbage. A forked child has nothing to tell of its parent's."""
        if self._total > self._told and os.getpid() == self._owner_pid:
            self._tell_sum("incidents in all: %s: %s")

    def _tell_one(self, level: int, incident: Incident, from_now_on: str = "") -> None:
        known_as = f" ({incident.id})" if incident.id else ""
        facts = {"incident": incident, "front": self._front, "count": self._total}
        _write(level, "incident: %s: %s%s%s", (self._front, incident, known_as, from_now_on), facts)

    def _tell_sum(self, event: str) -> None:
        self._told = self._total
        each = ", ".join(f"{cause}: {number}" for cause, number in self._counts.most_common())
        facts = {"front": self._front, "count": self._total, "causes": dict(self._counts)}
        _write(logging.WARNING, event, (self._front, f"{self._total} ({each})"), facts)


def _write(level: int, event: str, args: tuple[object, ...], facts: Mapping[str, object]) -> None:
    try:
        _log.log(level, event, *args, extra=facts)
    except Exception:  # of a handler of the user's: no sample and no call is to fail of it
        traceback.print_exc()


def takes_warnings(logger: logging.Logger) -> bool:
    """Whether a handler, of this logger or those above it, gets its warnings. Ours, which does nothing, is none."""
    if not logger.isEnabledFor(logging.WARNING):
        return False
    above: logging.Logger | None = logger
    while above is not None:
        if any(h.level <= logging.WARNING and not isinstance(h, logging.NullHandler) for h in above.handlers):
            return True
        above = above.parent if above.propagate else None
    return False


def _is_power_of_ten(number: int) -> bool:
    return number >= 10 and number == 10 ** (len(str(number)) - 1)
