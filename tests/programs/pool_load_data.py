"""Three programs of a user's account of worker crashes, with the import changed, and what may go wrong in one item.

Usage: pool_load_data.py PROGRAM VERSION
PROGRAM: unhandled | logged | memory. VERSION: works (as it was written), raises, dies, hangs (item 3 does).
Runs in: a child of the test process.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time

from holdfast import ProcessPoolExecutor

BAD = 3


def go_wrong(item: int, version: str) -> None:
    if item != BAD or version == "works":
        return
    if version == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    while version == "hangs":
        time.sleep(0.01)
    raise LookupError("item 3 is bad")


def unhandled(item: int, version: str = "works") -> int | None:
    go_wrong(item, version)
    try:
        # Simulate potential error during data loading
        if item % 2 == 0:
            raise ValueError("Even numbers cause errors!")
        return item * 2
    except Exception as e:
        print(f"Error processing {item}: {e}", flush=True)
        return None


def logged(item: int, version: str = "works") -> int | None:
    go_wrong(item, version)
    try:
        if item % 2 == 0:
            raise ValueError("Even numbers cause errors!")
        return item * 2
    except ValueError as e:
        logging.error(f"ValueError processing {item}: {e}")
        return None
    except Exception as e:
        logging.exception(f"Unexpected error processing {item}: {e}")
        return None


def memory(data: int, version: str = "works") -> int:
    go_wrong(data, version)
    large_object = [i for i in range(1000000)]  # noqa: C416
    result = data + len(large_object)
    del large_object  # Explicitly delete the large object
    gc.collect()  # Force garbage collection
    return result


def main(program: str, version: str) -> None:
    function = {"unhandled": unhandled, "logged": logged, "memory": memory}[program]
    if version == "works":
        with ProcessPoolExecutor() as executor:
            results = list(executor.map(function, range(10)))
            print(results)
        return
    with ProcessPoolExecutor(timeout=2.0) as executor:
        futures = [executor.submit(function, item, version) for item in range(10)]
        print([type(f.exception()).__name__ if f.exception() else f.result() for f in futures])


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stdout)
    main(sys.argv[1], sys.argv[2])
