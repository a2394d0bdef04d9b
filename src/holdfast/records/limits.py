"""How large records may become.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one file, and of all of them together."""

    max_incidents: int = 1000
    max_file_bytes: int = 8 << 20
    first_s: float = 1.0
    """After which the first reading is taken: a run of a few seconds has one too."""
    interval_s: float = 5.0
    """Between two readings, at first."""
    readings_per_interval: int = 240
    """After so many readings the interval doubles: 20 minutes every 5 s, 40 minutes every 10 s... a month is 2,900."""
    reading_bytes_per_interval: int = 256 << 10
    """After so many bytes of readings it doubles too: with many workers a reading is long."""
    max_readings: int = 6000
    max_reading_bytes: int = 3 << 20
    """What readings may take of a file. The rest is for incidents, and a little for the next two."""
    max_skipped: int = 5000
    max_skipped_bytes: int = 1 << 20
    max_worker_lines: int = 4000
    """Two for each process: a worker that is replaced after every batch has many."""
    max_worker_bytes: int = 512 << 10
    max_runs: int = 200
    max_total_bytes: int = 100 << 20


LIMITS = Limits()
