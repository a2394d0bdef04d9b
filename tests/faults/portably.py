"""What the tests of the portable backend share.

Runs in: the test process, and (the dataset) the workers.
"""

from __future__ import annotations

import torch
from torch.utils.data import Dataset, get_worker_info

from helpers import numbers, shared_memory_names
from holdfast import DataLoader
from holdfast.transport import names

LENGTH = 200
BATCH_SIZE = 4
BATCHES = LENGTH // BATCH_SIZE


def portable(dataset: Dataset[torch.Tensor], **options: object) -> DataLoader[torch.Tensor]:
    return DataLoader(dataset, **{"batch_size": BATCH_SIZE, "num_workers": 2, "backend": "portable", **options})


def whole(batches: list[torch.Tensor], length: int = LENGTH) -> bool:
    return torch.equal(torch.cat(batches), numbers(0, length, 4))


def check_batch(batch: torch.Tensor, number: int) -> None:
    assert torch.equal(batch, numbers(number * BATCH_SIZE, BATCH_SIZE, 4)), f"batch {number} is not what it should be"


def names_of_ours() -> set[str]:
    return {name for name in shared_memory_names() if name.startswith(names.this_owner())}


def spare_of(iterator: object) -> int | None:
    """The pid of the spare, once it has said that it is there."""
    spare = iterator._backend._spare  # type: ignore[attr-defined]
    if spare is None:
        return None
    while spare.line.has_news():
        spare.receive()
    return spare.pid if spare.line.was_heard else None


class Random(Dataset[torch.Tensor]):
    """What depends on the seeds of the worker and on which one it is."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        assert info is not None
        return torch.cat([torch.rand(2), torch.tensor([info.id, info.seed, info.num_workers, index])])
