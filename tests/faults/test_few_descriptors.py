"""A soft limit of 256 descriptors (torch's "Too many open files") is enough for 8 workers and all batches kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from helpers import Numbers, numbers, run_program
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize("sizes", ["same", "growing"])
def test_256_descriptors_are_enough_for_8_workers_and_every_batch_kept(sizes: str) -> None:
    """1000 kept batches of one size, or 400 whose size grows by a factor of a thousand; two epochs of them."""
    assert run_program("few_descriptors.py", sizes).startswith("whole epochs")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("kept_epochs", [1, 40], ids=["of-the-first-epoch", "of-every-epoch"])
def test_a_kept_batch_costs_no_descriptor_per_epoch(kept_epochs: int) -> None:
    """Keep a batch, of one epoch or of each, and train for ever: epochs come and go and leave no descriptor open."""
    loader = DataLoader(Numbers(8), batch_size=2, num_workers=1)
    kept = []
    opened = []
    for epoch in range(40):
        first, *_ = list(loader)
        if epoch < kept_epochs:
            kept.append(first)
        del first, _
        opened.append(open_descriptors())
    assert opened[-1] <= opened[5] + 5, opened
    assert all(torch.equal(batch, numbers(0, 2, 4)) for batch in kept)


def test_a_kept_batch_costs_no_descriptor_per_fork() -> None:
    """Keep a batch and fork again and again: children that have ended leave no descriptor open in their parent."""
    with DataLoader(Numbers(400), batch_size=2, num_workers=1) as loader:
        iterator = iter(loader)
        kept = next(iterator)
        before = open_descriptors()
        for _ in range(40):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        assert open_descriptors() <= before + 5
        assert torch.equal(next(iterator), numbers(2, 2, 4))
        assert torch.equal(kept, numbers(0, 2, 4))
