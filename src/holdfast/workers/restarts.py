"""When to start a lost worker again, and when to give up. Pure: no process, no clock of its own.

Runs in: supervisor process (deaths before a worker was ready), main process (deaths between samples).
"""

from __future__ import annotations

import signal
from collections import deque

WINDOW_S = 60.0
_SENT_BY_OTHERS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_FROM_OUTSIDE = {-getattr(signal, name) for name in _SENT_BY_OTHERS if hasattr(signal, name)}


def is_from_outside(exitcode: int | None) -> bool:
    """Whether a process was ended by a signal that other processes send, and that no fault of its own raises."""
    return exitcode in _FROM_OUTSIDE


def starts_again(
    exitcode: int, deaths_in_a_row: int, max_restarts: int, *, has_been_ready: bool, is_for_memory: bool = False
) -> bool:
    """Whether a worker that died before it was ready is worth another start.

    Where none has ever been ready the next would die as well, of the same import or init function, and the user waits:
    no second try, unless it was killed from outside. Later, after a restart, such a death is bad luck.
    `is_for_memory`: the kernel has killed for want of memory; one more try shows whether there is enough by now.
    """
    if has_been_ready:
        return deaths_in_a_row <= max_restarts
    return is_from_outside(exitcode) and deaths_in_a_row <= (min(1, max_restarts) if is_for_memory else max_restarts)


class RestartWindow:
    """Counts the deaths of one worker that are nobody's sample."""

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self._times: deque[float] = deque(maxlen=max_restarts + 1)

    def is_exceeded_by_death_at(self, now_s: float) -> bool:
        """Note a death; True if there were more than `max_restarts` within a minute."""
        self._times.append(now_s)
        return len(self._times) > self._max_restarts and now_s - self._times[0] <= WINDOW_S
