"""Samples that are rows of a shared array, collated by torch's default.

Runs in: a program of its own, whose stderr is looked at. Arguments: the start method.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

import holdfast


class Rows(Dataset[Any]):
    def __init__(self) -> None:
        self.rows = holdfast.share(np.arange(8).reshape(8, 1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


if __name__ == "__main__":
    loader = holdfast.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    print([torch.flatten(batch).tolist() for batch in loader])
