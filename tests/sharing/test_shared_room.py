"""Where memory is limited, or /dev/shm is small: what does not fit is refused, and nobody is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import run_program
from holdfast.memory.cgroups import memory_cgroup_of
from waits import PATIENCE_S, wait_until

LIMIT_BYTES = 256_000_000


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    above = memory_cgroup_of("self")
    if above is None:
        pytest.skip("needs a memory cgroup, and there is none to be seen here")
    below = above.directory / f"holdfast-share-{os.getpid()}"
    try:
        below.mkdir()
        (below / ("memory.limit_in_bytes" if above.version == 1 else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"needs root, and cgroups whose memory can be limited: {error}")
    yield below
    wait_until(lambda: _is_removed(below), PATIENCE_S, f"rmdir {below}")


def _is_removed(directory: Path) -> bool:
    """Its last process may be gone a moment before the cgroup knows."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


@pytest.mark.root
def test_what_does_not_fit_into_the_cgroup_is_refused(small_cgroup: Path) -> None:
    """The kernel would kill the process in the middle of it, and say nothing."""
    lines = run_program("shared_in_cgroup.py", str(small_cgroup)).splitlines()
    assert lines[0].startswith("refused there is no room to share this: 600 MB more are needed, and ")
    assert lines[1:] == ["shared 50000000", "alive"]


@pytest.mark.root
def test_a_small_dev_shm_is_no_limit() -> None:
    """A container has 64 MB of it, the famous cause of a bus error; here there is none at all."""
    before = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4k,ro tmpfs /dev/shm && exec "$@"', "sh"]
    probe = subprocess.run([*before, "true"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if probe.returncode:
        pytest.skip(f"needs root and `unshare --mount` to mount a small /dev/shm: {probe.stderr.strip()}")
    assert run_program("many_shares.py", before=before).splitlines()[-1] == "124750"
