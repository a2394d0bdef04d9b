"""Loads a dataset whose module starts a thread on import; once a worker is killed on the way.

Usage: threads_on_import.py spawn | forkserver
Runs in: a child of the test process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings

import psutil
import torch

from helpers import PATIENCE_S, wait_until
from holdfast import DataLoader, HoldfastWarning


def main(method: str) -> None:
    warnings.simplefilter("ignore", HoldfastWarning)  # of the restart, which is looked at below
    from threaded_module import LENGTH, Threaded  # not at the top: the supervisor is to import it, not find it

    context = multiprocessing.get_context(method)
    shared = torch.zeros(LENGTH).share_memory_()
    dataset = Threaded(context.Value("i", 0), context.Lock(), shared)
    loader = DataLoader(dataset, batch_size=1, num_workers=2, prefetch_factor=1, multiprocessing_context=method)
    iterator = iter(loader)
    rows = [next(iterator)[0].tolist()]
    first = rows[0][2]
    started = wait_for_children(psutil.Process(first).parent(), 3)  # two workers and the spare
    os.kill(first, signal.SIGKILL)
    rows.extend(row[0].tolist() for row in iterator)
    replacements = {row[2] for row in rows} - {first, rows[1][2]}
    assert replacements <= started, "the spare had not taken the place"
    assert [row[0] for row in rows] == list(range(LENGTH)), rows
    assert shared.tolist() == list(range(LENGTH)), shared
    assert dataset.counter.value >= LENGTH
    stats = loader.stats()
    assert stats.new_interpreters == "importing the dataset's modules started threads (started-on-import)", stats
    assert (stats.restarts, stats.batches) == (1, LENGTH), stats
    print("thread", [row[1] for row in rows] == [1] * LENGTH, "processes", len({row[2] for row in rows}))


def wait_for_children(parent: psutil.Process, count: int) -> set[int]:
    found: set[int] = set()

    def there() -> bool:
        found.update(child.pid for child in parent.children())
        return len(found) >= count

    wait_until(there, PATIENCE_S, f"{count} children")
    return found


if __name__ == "__main__":
    main(sys.argv[1])
