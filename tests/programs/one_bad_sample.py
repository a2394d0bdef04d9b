"""A user's script with a sample that raises now and then: number 5 of ten, at one attempt in two.

Usage: one_bad_sample.py raise | skip
raise: epochs until one is ended by the error; prints it as the interpreter would. skip: a few epochs, prints each.
Runs in: a child of the test process.
"""

from __future__ import annotations

import random
import sys
import traceback
import warnings

import torch
from torch.utils.data import Dataset

from holdfast import DataLoader, HoldfastWarning

EPOCHS = 60


class Moody(Dataset[torch.Tensor]):
    """Numbers, one of which is in a mood."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5 and random.random() > 0.5:
            raise ValueError("not today")
        return torch.tensor(self.numbers[index], dtype=torch.float)


def epochs(loader: DataLoader[torch.Tensor]) -> None:
    for _ in range(EPOCHS):
        values = sorted(int(value) for batch in loader for value in batch)
        print(*values)


def main(on_error: str) -> None:
    dataset = Moody(list(range(10)))
    if on_error == "raise":
        try:
            epochs(DataLoader(dataset, batch_size=2, num_workers=4, shuffle=True))
        except ValueError:
            print(traceback.format_exc())
    else:
        loader = DataLoader(dataset, batch_size=2, num_workers=4, shuffle=True, on_error="skip")
        epochs(loader)
        print("skipped", *{sample.index for sample in loader.skipped_samples})


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "This DataLoader will create 4 worker processes")  # on a small machine
    warnings.filterwarnings("ignore", category=HoldfastWarning)  # that a sample is skipped is what is asked for
    main(sys.argv[1])
