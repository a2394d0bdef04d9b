"""What ranks have started, as far as it was seen: for where no supervisor adopts it, or that one was killed.

A process whose parent is gone belongs to init, and nobody can tell any more where it came from. So whoever may have to
end such processes looks for them while their parents live, now and then, and before it ends a parent itself.
A process that was started and orphaned between two looks is not found. Runs in: main process; rank process (`end_own`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psutil

_LOOK_EVERY_S = 0.5
_GONE_WITHIN_S = 0.5


class Descendants:
    """Of one process, or of a few."""

    def __init__(self) -> None:
        self._seen: set[psutil.Process] = set()  # by pid and the time of its start: never another that got its pid
        self._looked_s = float("-inf")

    def look(self, pids: Iterable[int], *, at_once: bool = False) -> None:
        """Called as often as one likes; unless it must be now, it looks twice a second at most."""
        now_s = time.monotonic()
        if not at_once and now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        found = {child for pid in pids for child in _children(pid)}
        self._seen = found | {process for process in self._seen if process.is_running()}

    def end(self) -> None:
        """All that were seen, and what those have started since."""
        seen, self._seen = self._seen, set()
        _kill(seen)


def end_own() -> None:
    """All that this process has started."""
    _kill(_children())


def _kill(processes: Iterable[psutil.Process]) -> None:
    """Bounded. Some may be children of this process, which are reaped here."""
    left = [process for process in processes if process.is_running()]
    left += [child for process in left for child in _children(process.pid)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, _GONE_WITHIN_S)


def _children(pid: int | None = None) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []
