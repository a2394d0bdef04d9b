"""/dev/shm of 64 MB, as containers have it, full, or read-only: batches larger than that go through all the same.

The file system is mounted in a mount namespace of the child program's own: nothing of it is seen outside.
"""

from __future__ import annotations

import subprocess

import pytest

from helpers import run_program

pytestmark = [pytest.mark.timeout(150), pytest.mark.root]

MOUNT = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
PREPARE = {
    "small": MOUNT,
    "full": f"{MOUNT} && ! head -c 100M /dev/zero > /dev/shm/filler 2> /dev/null",
    "read-only": f"{MOUNT} && mount -o remount,ro /dev/shm",
}


@pytest.fixture(scope="module")
def own_mounts() -> None:
    probe = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MOUNT], capture_output=True, text=True, timeout=30, check=False
    )
    if probe.returncode != 0:
        pytest.skip(f"needs root and `unshare --mount` to mount a small /dev/shm: {probe.stderr.strip()}")


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize("state", PREPARE)
def test_an_epoch_of_batches_larger_than_dev_shm_is_whole(state: str) -> None:
    """Batches of 80 MB, half of them kept: the epoch is right, and nothing is said on stderr."""
    before = ["unshare", "--mount", "sh", "-c", f'{PREPARE[state]} && exec "$@"', "sh"]
    assert run_program("large_epoch.py", state, before=before).splitlines()[-1] == "whole epoch"
