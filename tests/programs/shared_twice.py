"""A spawned process spawns another, and hands on what it was handed.

Runs in: a program of its own.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np

import holdfast
from holdfast.sharing.arrays import find_array

CONTEXT = multiprocessing.get_context("spawn")


def hand_on(array: Any, times: int) -> None:
    if times:
        process = CONTEXT.Process(target=hand_on, args=(array, times - 1))
        process.start()
        process.join()
    else:
        print(array.sum(), "shared" if find_array(array) else "copied", flush=True)


if __name__ == "__main__":
    hand_on(holdfast.share(np.arange(1000)), 2)
