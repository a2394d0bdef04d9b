"""A user's script: everything the workers need lives in `__main__`, and some of it is a lambda.

Usage: main_module.py fork | spawn | forkserver, also as `python - METHOD < main_module.py`
Runs in: a child of the test process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch.utils.data import Dataset, get_worker_info

from holdfast import DataLoader

FACTOR = 10
started: list[int] = []


class Mine(Dataset[int]):
    def __init__(self, transform: Callable[[int], int]) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.transform(index)


def remember(worker_id: int) -> None:
    started.append(worker_id)


def collate(samples: list[int]) -> dict[str, torch.Tensor]:
    info = get_worker_info()
    assert info is not None
    assert started == [info.id], (started, info.id)
    return {"values": torch.tensor(samples), "worker": torch.tensor(info.id)}


def main(method: str) -> None:
    loader = DataLoader(
        Mine(lambda index: index * FACTOR),
        batch_size=2,
        num_workers=2,
        collate_fn=lambda samples: collate([*samples]),
        worker_init_fn=remember,
        multiprocessing_context=method,
    )
    batches = list(loader)
    values = torch.cat([batch["values"] for batch in batches]).tolist()
    print(values, "init", sorted({int(batch["worker"]) for batch in batches}))


if __name__ == "__main__":
    main(sys.argv[1])
