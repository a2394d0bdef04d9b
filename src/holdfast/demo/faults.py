"""The bad samples of the demo: each fails in a way that datasets fail in real life.

Each is in a batch of its own, several batches from the next, so that none is met before the one before it was dealt
with. The sample that is killed is killed once only, as by the kernel when memory is short: a second attempt succeeds.
The others fail at every attempt.

Runs in: main process (the lists) | worker process (the dataset).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from torch.utils.data import Dataset

SAMPLES = 192
BATCH_SIZE = 8
BATCHES = SAMPLES // BATCH_SIZE
SAMPLE_S = 0.01
STEP_S = 0.05
"""What training takes for a batch: two workers are a little faster."""
EXIT_STATUS = 3
TARGET = f"{__name__}:samples"
"""Where the commands that take MODULE:DATASET find them."""
_FOR_EVER_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One bad sample. `name` says what becomes of it."""

    name: str
    sample: int
    how: str
    """What its `__getitem__` does."""


FAULTS = (
    Fault("raises", 29, "raise ValueError"),
    Fault("segfaults", 70, "read address 0"),
    Fault("hangs", 107, "never return"),
    Fault("exits", 138, f"os._exit({EXIT_STATUS})"),
    Fault("is killed", 173, "SIGKILL, once"),
)


class FaultySamples(Dataset[int]):
    """Sample i is the number i, after a moment of work, unless it is one of the bad ones.

    `folder` is where it is noted that the one sample was killed: an epoch needs a new one. None: it was, already.
    """

    def __init__(self, faults: Iterable[Fault], folder: Path | None) -> None:
        self.folder = folder
        self.fault_of = {fault.sample: fault.name for fault in faults}

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        time.sleep(SAMPLE_S)
        fault = self.fault_of.get(index)
        if fault is not None:
            _FAIL[fault](self.folder)
        return index


def samples() -> FaultySamples:
    """The bad samples as `holdfast replay` finds them, after the demo: the one that was killed loads now."""
    return FaultySamples(FAULTS, None)


def _raise(folder: Path | None) -> None:
    raise ValueError("not a JPEG file: starts with b'<html>'")


def _segfault(folder: Path | None) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # a demo leaves no core file behind
    ctypes.string_at(0)


def _hang(folder: Path | None) -> None:
    time.sleep(_FOR_EVER_S)


def _exit(folder: Path | None) -> None:
    os._exit(EXIT_STATUS)


def _be_killed(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        (folder / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


_FAIL: dict[str, Callable[[Path | None], None]] = dict(
    zip((fault.name for fault in FAULTS), (_raise, _segfault, _hang, _exit, _be_killed), strict=True)
)
