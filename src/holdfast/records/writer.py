"""The record of a run, as the loader writes it.

    {"holdfast":"run record","version":1,"kind":"start","id":"7f3a","time":...}      facts.py: this list and no more
    {"kind":"reading","time":...,"at_s":5.0,"batches":...}                           readings.py: fewer and fewer
    {"kind":"incident","number":2,"time":...,"cause":...}                            its id is 7f3a.2
    {"kind":"worker","time":...,"worker_id":1,"event":"started","why":"restart"}     a worker process began, or ended
    {"kind":"skipped","time":...,"epoch":0,"index":17,"reason":...}                  a sample was passed over
    {"kind":"full","time":...}                                                       from here on incidents are counted
    {"kind":"end","time":...,"incidents":...}                                        missing if the process was killed

- Nothing here raises into training. Where a record cannot be begun or continued the run goes on without, and one
  warning in a process says so. (Who turns warnings into errors gets that one too; the record is off by then.)
- A file never grows past its bounds, and there is always room left for its last line.
- A copy of a record, pickled or not, and the record in a forked child, write nothing.

Runs in: main process, in the thread that calls `next()`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from holdfast.board_rows import token_of
from holdfast.records import home, keeping
from holdfast.records.facts import RunFacts, start_line
from holdfast.records.limits import LIMITS, Limits
from holdfast.records.line_file import LineFile
from holdfast.records.lines import MAX_LINE_BYTES, encode
from holdfast.records.quota import Quota
from holdfast.records.readings import Counters, Readings, WorkerPids

_RESERVED_BYTES = 2 * MAX_LINE_BYTES  # for "full" and "end"
_MOST_CAUSES = 100


class RunRecord:
    """One run on disk. `id` and `path` are None where nothing is recorded."""

    def __init__(self, run_id: str | None, file: LineFile | None, nbytes: int, limits: Limits = LIMITS) -> None:
        self.id = run_id
        self.path: Path | None = None if file is None else file.path
        self._file = file
        self._nbytes = nbytes
        self._limits = limits
        self._readings = Readings(limits)
        self._due_s = math.inf if file is None else -math.inf
        self._incidents = 0
        self._incidents_left_out: Counter[str] = Counter()
        self._of_readings = Quota(limits.max_readings, limits.max_reading_bytes)
        self._of_workers = Quota(limits.max_worker_lines, limits.max_worker_bytes)
        self._of_skipped = Quota(limits.max_skipped, limits.max_skipped_bytes)
        self.token = 0
        """What the status board of the run says that it is of; 0 where nothing is recorded."""

    @classmethod
    def open(cls, facts: RunFacts, limits: Limits = LIMITS) -> Self:
        """Begin a record, and remove old ones. One that writes nothing where there is no place for it."""
        try:
            runs = home.runs_directory()
            return cls.none() if runs is None else cls._begin(runs, facts, limits)
        except OSError as error:
            home.warn_once(error)
            return cls.none()

    @classmethod
    def none(cls) -> Self:
        """A record that writes nothing."""
        return cls(None, None, 0)

    @classmethod
    def _begin(cls, runs: Path, facts: RunFacts, limits: Limits) -> Self:
        home.make_private(runs)
        keeping.make_room(runs, limits)
        started = time.time()
        run_id, file = keeping.create(runs, started)
        line = encode(start_line(facts, run_id, started))
        try:
            file.append(line)
        except OSError:
            file.path.unlink(missing_ok=True)
            file.close()
            raise
        record = cls(run_id, file, len(line), limits)
        record.token = token_of(run_id, started)
        return record

    def note_incident(self, incident: Mapping[str, Any]) -> str | None:
        """Write an incident. Returns its id, as in `7f3a.2`; None where it is not in the record."""
        if self._file is None or not self._file.is_ours:
            return None
        self._incidents += 1
        said = {"time": time.time(), **incident}
        line = _line("incident", {"number": self._incidents}, said)
        if self._incidents > self._limits.max_incidents or not self._has_room(line):
            self._leave_out(incident)
            return None
        return f"{self.id}.{self._incidents}" if self._write(line) else None

    def note_worker(self, life: Mapping[str, Any]) -> None:
        """A worker process has started, or ended."""
        self._note("worker", life, self._of_workers)

    def note_skipped(self, sample: Mapping[str, Any]) -> None:
        """A sample was skipped, or replaced by another."""
        self._note("skipped", sample, self._of_skipped)

    def tick(self, now_s: float, counters: Counters, worker_pids: WorkerPids = dict) -> None:
        """Take a reading, if one is due by the caller's clock; a comparison if not."""
        if now_s >= self._due_s:
            self._read(now_s, counters, worker_pids)

    def close(self, summary: Mapping[str, Any] | None = None) -> None:
        """Write the last line, and let the file go. To close again does nothing."""
        if self._file is None:
            return
        counts = {
            "incidents": self._incidents,
            "incidents_left_out": dict(self._incidents_left_out),
            "readings": self._of_readings.written,
            "readings_left_out": self._of_readings.left_out,
            "worker_lines_left_out": self._of_workers.left_out,
            "skipped_left_out": self._of_skipped.left_out,
        }
        if self._file.is_ours:
            self._write(_line("end", {"time": time.time(), **counts}, summary or {}))
        self._stop()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).none, ()  # two objects must not have one descriptor

    def _read(self, now_s: float, counters: Counters, worker_pids: WorkerPids) -> None:
        if self._file is None or not self._file.is_ours:
            self._due_s = math.inf
            return
        said = self._readings.take(now_s, counters, worker_pids)
        if said is not None:
            line = _line("reading", {"time": time.time(), "incidents": self._incidents}, said)
            self._readings.pace.taken(now_s, len(line))
            self._write_within(self._of_readings, line)
        if self._file is not None:
            self._due_s = self._readings.pace.due_s

    def _note(self, kind: str, said: Mapping[str, Any], quota: Quota) -> None:
        if self._file is not None and self._file.is_ours:
            self._write_within(quota, _line(kind, {"time": said.get("time", time.time())}, said))

    def _write_within(self, quota: Quota, line: bytes) -> None:
        if quota.has_room_for(line) and self._has_room(line):
            quota.count(line, is_written=self._write(line))
        else:
            quota.leave_out()

    def _leave_out(self, incident: Mapping[str, Any]) -> None:
        if not self._incidents_left_out:
            self._write(_line("full", {"time": time.time()}, {}))
        cause = str(incident.get("cause", "")).split(":")[0]  # without the words of an exception, which may all differ
        is_new = cause not in self._incidents_left_out
        self._incidents_left_out["others" if is_new and len(self._incidents_left_out) >= _MOST_CAUSES else cause] += 1

    def _has_room(self, line: bytes) -> bool:
        return self._nbytes + len(line) <= self._limits.max_file_bytes - _RESERVED_BYTES

    def _write(self, line: bytes) -> bool:
        """Whether it is written. The first error is the end of the record: a disk does not get less full by trying."""
        if self._file is None:
            return False
        try:
            self._file.append(line)
        except OSError as error:
            self._stop()
            home.warn_once(error)
            return False
        self._nbytes += len(line)
        return True

    def _stop(self) -> None:
        self._due_s = math.inf
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _line(kind: str, ours: Mapping[str, Any], said: Mapping[str, Any]) -> bytes:
    """A line whose own fields come first, and win."""
    fields = {"kind": kind, **ours}
    try:
        return encode({**fields, **{key: value for key, value in said.items() if key not in fields}})
    except Exception as error:  # an index is any object of the user's, and may fail at being looked at
        return encode({**fields, "cut": True, "error": type(error).__name__})
