"""A soft limit of 256 descriptors (torch's "Too many open files") is enough for 8 workers and all batches kept."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path

import pytest
import torch

from helpers import Numbers, numbers, run_program
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize("sizes", [pytest.param("same", marks=pytest.mark.long), "growing"])
def test_256_descriptors_are_enough_for_8_workers_and_every_batch_kept(sizes: str) -> None:
    """1000 kept batches of one size, or 400 whose size grows by a factor of a thousand; two epochs of them."""
    assert run_program("few_descriptors.py", sizes).startswith("whole epochs")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.long
@pytest.mark.parametrize(
    "kept_epochs", [pytest.param(1, id="of-the-first-epoch"), pytest.param(40, id="of-every-epoch")]
)
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


def test_a_death_beside_many_open_files_is_what_it_is(tmp_path: Path) -> None:
    """Numbers of 1024 and more, which `select` refuses, are as good as others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"needs 2048 descriptors, and the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(tmp_path, os.O_RDONLY) for _ in range(1100)]
    try:
        with DataLoader(Dies(8, 3), batch_size=2, num_workers=2, on_error="skip") as loader:
            assert [batch[:, 0].tolist() for batch in loader] == [[0, 1], [2], [4, 5], [6, 7]]
            assert {incident.cause for incident in loader.incidents} == {"exit by user code"}
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Dies(Numbers):
    def __init__(self, length: int, at: int) -> None:
        super().__init__(length)
        self.at = at

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            os._exit(3)
        return super().__getitem__(index)


class CountsDescriptors(Numbers):
    """Sample 4 kills the first worker that loads it; each sample is the number of open descriptors."""

    def __init__(self, once: Path) -> None:
        super().__init__(8)
        self.once = once

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 4 and not self.once.exists():
            self.once.touch()
            os._exit(3)
        return torch.tensor(open_descriptors())


def test_a_replacement_inherits_nothing_of_the_worker_before_it(tmp_path: Path) -> None:
    with DataLoader(CountsDescriptors(tmp_path / "once"), batch_size=1, num_workers=1) as loader:
        counts = [int(batch) for batch in loader]
    assert (tmp_path / "once").exists()
    assert set(counts) == {counts[0]}


class LeavesNoDescriptor(Numbers):
    """Sample 1 opens files until its worker can open no more, and closes none."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            with contextlib.suppress(OSError):
                while True:
                    os.dup(0)
        return super().__getitem__(index)


def allow_only_256(worker_id: int) -> None:
    sys.stderr = sys.__stderr__  # pytest's own is a file, which the supervisor does not read
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_a_worker_that_has_no_descriptor_left_for_a_slot_says_so() -> None:
    """Batches that are kept make the pool grow, and a worker has to be given more memory."""
    loader = DataLoader(LeavesNoDescriptor(64), batch_size=1, num_workers=1, worker_init_fn=allow_only_256)
    with loader:
        kept = list(loader)
        assert [int(batch[0, 0]) for batch in kept] == list(range(64))
        assert [(incident.cause, incident.done) for incident in loader.incidents] == [
            ("too many open files", "restarted")
        ]
        assert "of holdfast" in str(loader.incidents[0].evidence)  # who holds them
