"""A soft limit of 256 descriptors, 8 workers, and a user who keeps every batch.

Usage: few_descriptors.py same | growing (sizes of the batches)
Runs in: a child of the test process.
"""

from __future__ import annotations

import resource
import sys
import warnings
from pathlib import Path

import torch

from helpers import Waves, say
from holdfast import DataLoader

LIMIT = 256
BATCH_SIZE = 4
SIZES = {"same": (1000, [500]), "growing": (400, [10 * 2**step for step in range(11)])}


def as_record(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    batch = torch.stack(samples)
    return {"batch": batch, "first": batch[:, 0].clone(), "last": batch[:, -1].clone()}


def main(sizes: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    batches, widths = SIZES[sizes]
    dataset = Waves(batches, BATCH_SIZE, widths)
    with DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=8, collate_fn=as_record) as loader:
        kept = list(loader)
        assert len(kept) == batches
        again = list(loader)  # and a second set of workers, while the first epoch is still kept
    for number, record in enumerate(kept):
        expected = dataset.batch(number)
        assert torch.equal(record["batch"], expected), number
        assert torch.equal(record["first"], expected[:, 0]), number
        assert torch.equal(record["last"], expected[:, -1]), number
        assert torch.equal(again[number]["batch"], expected), number
    say("whole epochs,", len(list(Path("/proc/self/fd").iterdir())), "descriptors open")


if __name__ == "__main__":
    main(sys.argv[1])
