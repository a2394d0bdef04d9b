"""Two workers on shared data; says "ready" when both have read it, and stays in mid-epoch.

Runs in: a program of its own. Arguments: the start method, or "portable".
"""

from __future__ import annotations

import sys
import time

import numpy as np
from torch.utils.data import Dataset

import holdfast
from helpers import say


class Sums(Dataset[float]):
    def __init__(self) -> None:
        self.data = holdfast.share({"x": np.ones(10_000_000), "names": [str(index) for index in range(100_000)]})

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> float:
        return float(self.data["x"].sum()) + len(self.data["names"][index])


if __name__ == "__main__":
    method = sys.argv[1]
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    iterator = iter(holdfast.DataLoader(Sums(), batch_size=None, num_workers=2, **how))
    for _ in range(4):
        next(iterator)
    say("ready")
    time.sleep(3600)
