"""Iterates a dataset that holds multiprocessing's objects and a shared tensor, and checks that both sides share them.

Usage: connected_dataset.py fork | spawn | forkserver
Runs in: a child of the test process.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import BaseContext
from typing import cast

import torch
from torch.utils.data import Dataset

from helpers import PATIENCE_S, say
from holdfast import DataLoader

LENGTH = 40


class Connected(Dataset[int]):
    """Each sample uses every object once: waits for the event, counts under the lock, reports, writes its row."""

    def __init__(self, context: BaseContext) -> None:
        self.event = context.Event()
        self.lock = context.Lock()
        self.count = context.Value("q", 0)
        self.unlocked_count = context.Value("q", 0, lock=False)
        self.queue = context.Queue()
        self.table = torch.zeros(LENGTH, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        if not self.event.wait(PATIENCE_S):
            raise TimeoutError("the event that the main process set did not reach the worker")
        with self.lock:
            self.unlocked_count.value += 1
        with self.count.get_lock():
            self.count.value += 1
        self.queue.put(index)
        self.table[index] = index + 1
        return index


def main(method: str) -> None:
    dataset = Connected(cast(BaseContext, multiprocessing.get_context(method)))
    dataset.queue.put("from the main process")  # a queue that the parent has used has a feeder thread there
    assert dataset.queue.get(timeout=PATIENCE_S) == "from the main process"
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=method)
    for epoch in (1, 2):
        dataset.event.clear()
        iterator = iter(loader)
        dataset.event.set()
        assert torch.cat(list(iterator)).tolist() == list(range(LENGTH))
        assert (dataset.count.value, dataset.unlocked_count.value) == (LENGTH * epoch, LENGTH * epoch)
        assert sorted(dataset.queue.get(timeout=PATIENCE_S) for _ in range(LENGTH)) == list(range(LENGTH))
        assert dataset.table.tolist() == list(range(1, LENGTH + 1))
        dataset.table.zero_()
        del iterator
    say("connected")


if __name__ == "__main__":
    main(sys.argv[1])
