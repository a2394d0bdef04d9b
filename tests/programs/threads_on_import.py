"""Loads a dataset whose module starts a thread on import; once a worker is killed on the way.

Usage: threads_on_import.py spawn | forkserver
Runs in: a child of the test process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

import torch

from holdfast import DataLoader


def main(method: str) -> None:
    from threaded_module import LENGTH, Threaded  # not at the top: the supervisor is to import it, not find it

    context = multiprocessing.get_context(method)
    shared = torch.zeros(LENGTH).share_memory_()
    dataset = Threaded(context.Value("i", 0), context.Lock(), shared)
    loader = DataLoader(dataset, batch_size=1, num_workers=2, prefetch_factor=1, multiprocessing_context=method)
    iterator = iter(loader)
    rows = [next(iterator)[0].tolist()]
    os.kill(rows[0][2], signal.SIGKILL)
    rows.extend(row[0].tolist() for row in iterator)
    assert [row[0] for row in rows] == list(range(LENGTH)), rows
    assert shared.tolist() == list(range(LENGTH)), shared
    assert dataset.counter.value >= LENGTH
    print("thread", [row[1] for row in rows] == [1] * LENGTH, "processes", len({row[2] for row in rows}))


if __name__ == "__main__":
    main(sys.argv[1])
