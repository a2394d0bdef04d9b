"""Where memory is limited, or /dev/shm is small: what does not fit is refused, and nobody is killed."""

from __future__ import annotations

import subprocess

import pytest

from helpers import run_program
from memory_cgroups import limited_cgroup
from waits import PATIENCE_S

LIMIT_BYTES = 256_000_000


@pytest.mark.root
def test_what_does_not_fit_into_the_cgroup_is_refused() -> None:
    """The kernel would kill the process in the middle of it, and say nothing."""
    with limited_cgroup(LIMIT_BYTES) as cgroup:
        lines = run_program("shared_in_cgroup.py", str(cgroup.directory)).splitlines()
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
