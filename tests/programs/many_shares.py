"""500 shares in one dataset, under a limit of 600 descriptors.

Runs in: a program of its own.
"""

from __future__ import annotations

import resource

import numpy as np
from torch.utils.data import Dataset

import holdfast


class Many(Dataset[int]):
    def __init__(self) -> None:
        self.parts = [holdfast.share(np.full(10, number)) for number in range(500)]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> int:
        return int(self.parts[index][-1])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
    print(sum(holdfast.DataLoader(Many(), batch_size=None, num_workers=2, multiprocessing_context="fork")))
