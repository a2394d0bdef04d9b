"""A shared list whose items are of classes that live in `__main__`, read by spawned workers.

Runs in: a program of its own, also through standard input, where nobody could import it again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.utils.data import Dataset

import holdfast


@dataclasses.dataclass
class Record:
    number: int


class Records(Dataset[int]):
    def __init__(self, records: Any) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> int:
        return int(self.records[index].number)


if __name__ == "__main__":
    shared = holdfast.share([Record(number) for number in range(8)])
    assert isinstance(shared[0], Record)
    print(list(holdfast.DataLoader(Records(shared), batch_size=None, num_workers=1, multiprocessing_context="spawn")))
