"""Runs as they come and go: those that are alive, and for a while those that ended while somebody looked.

Runs in: main process.
"""

from __future__ import annotations

import contextlib
import time

from holdfast.records import live, reader
from holdfast.records.reader import Run
from holdfast.report.live_model import Looks
from holdfast.report.live_pictures import RunPicture

_KEPT_S = 60.0
"""So long a run that is over is shown: whoever looks away for a moment still sees how it ended."""


class Watch:
    """Looks at all runs of this machine again and again, or at one."""

    def __init__(self, only: Run | None = None) -> None:
        self._only = only
        self._looks: dict[str, Looks] = {}
        self._known: dict[str, Run] = {}
        self._over_since_s: dict[str, float] = {}
        self.pictures: list[RunPicture] = []
        """Of the last look: the oldest run first, so that none moves when another begins; those that are over last."""

    def look(self) -> list[RunPicture]:
        """Look once more. Rates need two looks."""
        runs = self._runs()
        for run in runs:
            self._looks.setdefault(run.id, Looks()).add(live.look(run))
        self._known = {run.id: run for run in runs}
        self._looks = {run_id: self._looks[run_id] for run_id in self._known}
        now = time.time()
        found = [self._looks[run.id].picture(now) for run in sorted(runs, key=lambda run: run.path.name)]
        self.pictures = sorted(found, key=lambda picture: picture.is_over)
        return self.pictures

    def _runs(self) -> list[Run]:
        if self._only is not None:
            self._only = _read_again(self._only)
            return [self._only]
        alive = {run.id: run for run in live.running()}
        gone = [_read_again(run) for run_id, run in self._known.items() if run_id not in alive]
        return [*alive.values(), *(run for run in gone if self._is_kept(run))]

    def _is_kept(self, run: Run) -> bool:
        now_s = time.monotonic()
        return now_s - self._over_since_s.setdefault(run.id, now_s) < _KEPT_S


def _read_again(run: Run) -> Run:
    with contextlib.suppress(OSError):  # removed in the meantime: what is known of it is still true
        return reader.read(run.path)
    return run
