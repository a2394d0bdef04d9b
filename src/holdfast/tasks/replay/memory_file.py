"""What memray notes of a sample: every allocation, in a file that memray can draw.

A sample that dies leaves a file without an end; what is in it can be read all the same.

Runs in: main process; the worker writes the file (`watched.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
from pathlib import Path

from holdfast.tasks.replay.case import CannotReplayError
from holdfast.tasks.replay.guarded import Order


def ordered(order: Order, incident_id: str) -> Order:
    """The same order, with a file in the current directory. CannotReplayError where there is no memray."""
    if importlib.util.find_spec("memray") is None:
        raise CannotReplayError("--memray needs memray, which is not installed here: pip install memray")
    return dataclasses.replace(order, memray_file=str(Path(f"holdfast-replay-{incident_id}.bin").resolve()))


def peak_bytes(order: Order) -> int | None:
    """The most that the sample had allocated at once; None where that was not noted."""
    if order.memray_file is None or not Path(order.memray_file).exists():
        return None
    import memray

    peak = None
    with contextlib.suppress(OSError, ValueError), memray.FileReader(order.memray_file) as reader:
        peak = sum(record.size for record in reader.get_high_watermark_allocation_records(merge_threads=True))
    return peak  # None: it ended before there was anything in the file
