"""A user's script whose dataset keeps a lock, and counts on its class: each worker has a counter of its own.

Usage: shared_counter.py METHOD raise | skip
Runs in: a child of the test process.
"""

from __future__ import annotations

import sys
import threading
import warnings

import torch
from torch.utils.data import Dataset

from holdfast import DataLoader, NotPicklable

LENGTH = 100


class Counting(Dataset[torch.Tensor]):
    """Every fifth sample counts down by one, the others up."""

    count = 0

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.lock:
            Counting.count += 1
            value = Counting.count
            if index % 5 == 0:
                Counting.count -= 2
        return torch.tensor([value], dtype=torch.float)


def main(method: str, on_error: str) -> None:
    loader = DataLoader(Counting(), batch_size=2, num_workers=4, multiprocessing_context=method, on_error=on_error)
    try:
        batches = list(loader)
    except NotPicklable as error:
        print(error)
    else:
        print(len(batches), "batches of", *{batch.shape[0] for batch in batches}, "in epoch", Counting.count)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This DataLoader will create 4 worker processes")  # on a small machine
    main(sys.argv[1], sys.argv[2])
