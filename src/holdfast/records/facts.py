"""What a record says of a run at its start: this list, and nothing else.

No argument of the command line but the script's own base name, or the name of a command of ours and the MODULE:DATASET
that it was given; no environment variable, nothing of any sample. A field that is not a text or a whole number becomes
the name of its type, so that an object handed over by mistake, such as the dataset in place of its class's name, does
not end up in the file.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import options
from holdfast.records import liveness
from holdfast.records.lines import cut, plain

HEADER = "run record"
VERSION = 1
"""Raised when an older reader would understand a file wrongly; a new field or kind of line is no reason."""

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a loader, a pool or a group of ranks says of itself."""

    holdfast_version: str
    torch_version: str
    num_workers: int
    start_method: str | None
    batch_size: int | None
    dataset: str | None
    """The name of its class; None: it runs calls."""
    dataset_length: int | None
    """None: it has none, or does not know it."""
    rank: int | None = None
    world_size: int | None = None
    sample_timeout_s: float | None = None
    python_version: str = field(default_factory=platform.python_version)
    front: str = "DataLoader"
    """What the user made: that, or what runs calls."""
    function: str | None = None
    """Of calls: the name of the first."""
    on_error: str | None = None
    memory_limit_bytes: int | None = None
    """Of each worker, beyond its start."""
    memory_budget_bytes: int | None = None
    """Of all workers and batches together."""


def start_line(facts: RunFacts, run_id: str, started: float) -> dict[str, Any]:
    """The first line of a record. Its beginning says what the file is."""
    told = {name: _told(getattr(facts, name)) for name in (field.name for field in dataclasses.fields(facts))}
    return {
        "holdfast": HEADER,
        "version": VERSION,
        "kind": "start",
        "id": run_id,
        "time": started,
        **told,
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": _cpus(),
        "script": cut(_script(), _LONGEST),
        "target": _told(options.target()),
        "command": _told(options.command()),
        "launch": _told(options.launch()),
        **liveness.identity(),
    }


def _told(value: object) -> Any:
    if isinstance(value, str):
        return cut(value, _LONGEST)
    return plain(value, depth=0)


def _cpus() -> int | None:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _script() -> str:
    return Path(sys.argv[0]).name if getattr(sys, "argv", None) else ""
