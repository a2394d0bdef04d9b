"""A user's program that keeps results in a manager's dict, with the pool replaced by ours; and `holdfast.map` beside.

Usage: pool_process_data.py FRONT VERSION
FRONT: pool | map. VERSION: works, raises, dies, hangs (item 3 does).
Runs in: a child of the test process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import Any

import torch.multiprocessing as mp

import holdfast

BAD = 3
data_list = list(range(8))


def process_data(data: int, version: str) -> int:
    if data == BAD and version == "raises":
        raise LookupError("item 3 is bad")
    if data == BAD and version == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    while data == BAD and version == "hangs":
        time.sleep(0.01)
    return data * data


def worker_function(data: int, return_dict: Any, version: str) -> None:
    try:
        return_dict[data] = process_data(data, version)
    except Exception as e:
        logging.error(f"Error in worker process: {e}")
        return_dict[data] = None  # Indicate failure


def with_pool(version: str) -> dict[int, Any]:
    with mp.Manager() as manager, holdfast.ProcessPoolExecutor(2, timeout=2.0) as pool:
        return_dict = manager.dict()
        futures = [pool.submit(worker_function, data_item, return_dict, version) for data_item in data_list]
        failed = {data: type(future.exception()).__name__ for data, future in enumerate(futures) if future.exception()}
        return {**dict(return_dict), **failed}


class Process:
    def __init__(self, version: str) -> None:
        self.version = version

    def __call__(self, data: int) -> int:
        return process_data(data, self.version)


def with_map(version: str) -> dict[int, Any]:
    results = holdfast.map(Process(version), data_list, num_workers=2, on_error="return", timeout=2.0)
    return {
        data: type(result.exception).__name__ if isinstance(result, holdfast.FailedItem) else result
        for data, result in enumerate(results)
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stdout)
    found = {"pool": with_pool, "map": with_map}[sys.argv[1]](sys.argv[2])
    print([found[data] for data in data_list])
