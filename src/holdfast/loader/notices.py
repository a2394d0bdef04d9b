"""What a user who has set up no logging is told of a loader: that samples are passed over, and workers restarted.

    Ledger ──► add, passed_over, restarted ──► due ──► say(): a HoldfastWarning at the user's line
    close(), garbage, exit ──► one line, if samples were passed over

- What is lost is noted in the middle of a step, and under `-W error` a warning is an exception, which would spoil the
  accounts there. So it is kept until `say()`, which is called where an exception loses nothing.
- Once for each kind and loader. Where a handler takes the warnings of our log, the log says it (`incident_log.py`).
- The line at the end is never raised: there may be another exception on its way, or nobody to catch it.

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref
from typing import Any

from holdfast.errors import HoldfastWarning
from holdfast.incident import Incident, bounded_repr
from holdfast.incident_log import takes_warnings
from holdfast.loader.skips import SkippedSample
from holdfast.words import plural

_log = logging.getLogger(__name__)
_MOST_NAMED = 10  # samples, in the line at the end
_NOT_THE_USERS = ("holdfast", "torch", "weakref")


class Notices:
    """The warnings of one loader. A copy has given none yet, and gives those that are still due."""

    def __init__(self, skipped: list[SkippedSample]) -> None:
        """`skipped`: the list to which the loader adds the samples that it passes over."""
        self._skipped = skipped
        self._said: set[str] = set()
        self._ending: weakref.finalize[..., Notices] | None = None  # once samples were passed over
        self.due: list[str] = []
        self.is_for_command = False  # one of our own commands uses the loader, and reports what it finds itself

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._skipped,), {"due": [*self.due]}

    def add(self, message: str) -> None:
        """Make a warning due, whether or not a log handler takes warnings."""
        if not self.is_for_command:
            self.due.append(message)

    def passed_over(self, sample: SkippedSample, *, is_known: bool) -> None:
        """Note a sample that was just added to the loader's list. `is_known`: it was left out without being tried."""
        if self._ending is None and not self.is_for_command:
            first = len(self._skipped) - 1
            self._ending = weakref.finalize(self, _sum_up, self._skipped, first, os.getpid())
        if not is_known:
            done = (
                "was skipped" if sample.replaced_by is None else f"was replaced by {bounded_repr(sample.replaced_by)}"
            )
            self._add_first(
                "passed over",
                f"sample {bounded_repr(sample.index)} {done}: {sample.reason}\n"
                f"This loader does not warn of further samples: loader.skipped_samples lists all of them",
            )

    def restarted(self, incident: Incident) -> None:
        """A worker was restarted, or the supervisor with all workers."""
        self._add_first(
            "restarted", f"{incident}\nThis loader does not warn of further restarts: loader.incidents lists them all"
        )

    def _add_first(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            if not takes_warnings(_log):
                self.add(message)

    def say(self) -> None:
        """Warn of what is due. Under `-W error` each is raised once: call it where no batch is lost by that."""
        while self.due:
            warnings.warn(self.due.pop(0), HoldfastWarning, stacklevel=_stacklevel_of_user())

    def end(self) -> None:
        """The loader is closed. What comes after this is summed up anew."""
        if self._ending is not None:
            self._ending()
        self._ending = None


def _stacklevel_of_user() -> int:
    """The stacklevel with which the caller's `warnings.warn` names the first frame outside holdfast and torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS:
        frame, level = frame.f_back, level + 1
    return level


def _sum_up(skipped: list[SkippedSample], first: int, owner_pid: int) -> None:
    """Runs also at exit, and when the loader is garbage. Does nothing in a forked child."""
    if os.getpid() != owner_pid:
        return
    replaced = {bounded_repr(sample.index): sample.replaced_by is not None for sample in skipped[first:]}
    done = " or ".join(word for word, is_so in (("skipped", False), ("replaced", True)) if is_so in replaced.values())
    more = ", ..." if len(replaced) > _MOST_NAMED else ""
    which = ", ".join([*replaced][:_MOST_NAMED]) + more
    were = "was" if len(replaced) == 1 else "were"
    text = f"{plural(len(replaced), 'sample')} {were} {done} in this loader: {which}; see loader.skipped_samples"
    try:
        if takes_warnings(_log):
            _log.warning("samples passed over: %s", text, extra={"count": len(replaced)})
        else:
            warnings.warn(text, HoldfastWarning, stacklevel=_stacklevel_of_user())
    except Exception:  # warnings are errors, or a log handler of the user raised
        sys.stderr.write(f"HoldfastWarning: {text}\n")
