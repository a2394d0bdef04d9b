"""A user's script whose dataset is a lambda in `__main__`: 64 samples, to workers that are new interpreters.

Usage: lambda_dataset.py METHOD, also as `python - METHOD < lambda_dataset.py`
Runs in: a child of the test process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from torch.utils.data import Dataset

from holdfast import DataLoader


class FromFunction(Dataset[int]):
    def __init__(self, length: int, function: Callable[[int], int]) -> None:
        self.length = length
        self.function = function

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return self.function(index)


def main(method: str) -> None:
    loader = DataLoader(FromFunction(64, lambda index: -index), 4, num_workers=2, multiprocessing_context=method)
    delivered = [-int(value) for batch in loader for value in batch]
    print(len(delivered), "in order" if delivered == list(range(64)) else delivered)


if __name__ == "__main__":
    main(sys.argv[1])
