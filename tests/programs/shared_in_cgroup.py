"""Moves into a memory cgroup of 256 MB, and shares what does not fit there; then what does.

Usage: shared_in_cgroup.py DIRECTORY
Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import holdfast

if __name__ == "__main__":
    Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
    for megabytes in (600, 50):
        zeros = np.zeros(megabytes * 1_000_000, np.uint8)  # takes no memory before it is written to
        try:
            print("shared", holdfast.share(zeros).nbytes)
        except holdfast.SharedMemoryError as error:
            print("refused", str(error).splitlines()[0])
    print("alive")
