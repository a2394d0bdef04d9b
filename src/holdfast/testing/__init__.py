"""For the tests of projects that use holdfast: has this code left anything behind?

from holdfast.testing import assert_no_leaks

with assert_no_leaks():
    train_one_epoch()

Needs psutil, never torch. Runs in: main process.
"""

from __future__ import annotations

from holdfast.testing.leaks import (
    DescriptorLeak,
    Leaks,
    ProcessLeak,
    Snapshot,
    ThreadLeak,
    assert_no_leaks,
    leaks_since,
    snapshot,
)

__all__ = [
    "DescriptorLeak",
    "Leaks",
    "ProcessLeak",
    "Snapshot",
    "ThreadLeak",
    "assert_no_leaks",
    "leaks_since",
    "snapshot",
]
