"""Loads samples, one of which hangs in every worker that is asked for it, as long as a file is there.

Usage: hang_at_sample.py BACKEND SAMPLE FILE [WORKERS]
BACKEND: "linux" is what fits, or "portable". Says "done" at the end of the epoch.
Runs in: a child of the test process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

from helpers import say
from holdfast import DataLoader

_NAP_S = 0.01


class HangsAt(Dataset[torch.Tensor]):
    """Sample i is i."""

    def __init__(self, sample: int, file: Path) -> None:
        self.sample, self.file = sample, file

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        while index == self.sample and self.file.exists():
            time.sleep(_NAP_S)
        return torch.tensor(index)


def main(backend: str, sample: int, file: Path, workers: int) -> None:
    dataset = HangsAt(sample, file)
    loader = DataLoader(
        dataset,
        batch_size=4,
        num_workers=workers,
        backend=None if backend == "linux" else backend,
        memory_limit="8GB" if workers else None,
        max_retries=5,
        rng="sample",
    )
    with loader:
        assert [int(value) for batch in loader for value in batch] == list(range(64))
    say("done")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 2)
