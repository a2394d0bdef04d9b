"""An epoch of batches of 80 MB, all of them right, whatever /dev/shm is.

Usage: large_epoch.py small | full | read-only (what the caller made of /dev/shm; checked here)
Runs in: a child of the test process, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import sys

import torch

from helpers import Numbers, numbers, say
from holdfast import DataLoader

BATCH_SIZE, WIDTH = 8, 1_250_000  # int64: 80 MB


def check_the_claim(state: str) -> None:
    file_system = os.statvfs("/dev/shm")
    assert file_system.f_blocks * file_system.f_frsize == 64 << 20, file_system
    if state == "full":
        assert file_system.f_bavail == 0, file_system
    if state == "read-only":
        assert file_system.f_flag & os.ST_RDONLY, file_system


def main(state: str) -> None:
    check_the_claim(state)
    kept = []
    with DataLoader(Numbers(6 * BATCH_SIZE, WIDTH), batch_size=BATCH_SIZE, num_workers=2) as loader:
        for number, batch in enumerate(loader):
            assert torch.equal(batch, numbers(number * BATCH_SIZE, BATCH_SIZE, WIDTH)), number
            if number % 2 == 0:
                kept.append((number, batch))
    for number, batch in kept:
        assert torch.equal(batch, numbers(number * BATCH_SIZE, BATCH_SIZE, WIDTH)), number
    say("whole epoch")


if __name__ == "__main__":
    main(sys.argv[1])
