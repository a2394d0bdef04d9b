"""What loading takes of a worker's memory: the most it had while it loaded, and what it keeps between units.

The kernel keeps the peak of a process, and forgets it on request. To read it takes some 20 microseconds, so after the
first units it is read fifty times a second at most; the peak is then that of all units since the last time.

Runs in: worker process.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from holdfast.board_rows import KEPT_BYTES, PEAK_BYTES

_EVERY_S = 0.02
_ALWAYS_AT_FIRST = 8
_LINES = re.compile(rb"^(VmHWM|VmRSS|RssAnon):\s+(\d+)", re.MULTILINE)
_FORGET_PEAK = b"5"  # see proc_pid_clear_refs(5)


class Meter:
    """Writes it on the worker's row of the status board. Where there is no /proc it writes nothing."""

    def __init__(self, row: memoryview, *, forgets_peaks: bool = True) -> None:
        self._row = row
        self._units = 0
        self._due_s = 0.0
        self._status = self._clear = -1
        with contextlib.suppress(OSError):
            self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
            if forgets_peaks:
                self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)

    def close(self) -> None:
        for fd in (self._status, self._clear):
            if fd >= 0:
                os.close(fd)
        self._status = self._clear = -1

    def end_unit(self) -> int | None:
        """Between two units. What it keeps, if that was looked at this time."""
        self._units += 1
        now_s = time.monotonic()
        if self._status < 0 or (self._units > _ALWAYS_AT_FIRST and now_s < self._due_s):
            return None
        self._due_s = now_s + _EVERY_S
        found = {name: int(kilobytes) * 1024 for name, kilobytes in _LINES.findall(os.pread(self._status, 8192, 0))}
        anonymous = found[b"RssAnon"]
        # what was shared at the peak is not told: as much as now, then
        self._row[PEAK_BYTES] = max(anonymous, found[b"VmHWM"] - (found[b"VmRSS"] - anonymous))
        self._row[KEPT_BYTES] = anonymous
        if self._clear >= 0:
            with contextlib.suppress(OSError):
                os.write(self._clear, _FORGET_PEAK)
        return anonymous
