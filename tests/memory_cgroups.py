"""Real memory cgroups with a limit, for tests that need one. Runs in: the test process."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.memory.cgroups import MemoryCgroup, memory_cgroup_of
from waits import PATIENCE_S, wait_until

_numbers = itertools.count()


@contextlib.contextmanager
def limited_cgroup(limit_bytes: int) -> Iterator[MemoryCgroup]:
    """A cgroup below that of this process. Who moves into it brings along no memory, but what comes counts."""
    above = memory_cgroup_of("self")
    if above is None:
        pytest.skip("needs a memory cgroup, and there is none to be seen here")
    below = above.directory / f"holdfast-test-{os.getpid()}-{next(_numbers)}"
    try:
        below.mkdir()
    except OSError as error:
        pytest.skip(f"needs root, and cgroups that may be written to: {error}")
    try:
        cgroup = MemoryCgroup(below, above.version)
        _set_limit(cgroup, limit_bytes)
        yield cgroup
    finally:
        wait_until(lambda: _is_removed(below), PATIENCE_S, f"rmdir {below}")


def _set_limit(cgroup: MemoryCgroup, limit_bytes: int) -> None:
    name = "memory.limit_in_bytes" if cgroup.version == 1 else "memory.max"
    try:
        (cgroup.directory / name).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"needs a cgroup whose memory can be limited: {error}")


def _is_removed(directory: Path) -> bool:
    """Its last process may be gone a moment before the cgroup knows."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()
