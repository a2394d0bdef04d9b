"""memory_limit: a sample is to blame for what it asks for, and not for what its worker keeps of those before it."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from helpers import stay
from holdfast import DataLoader
from hungry import KEPT, MB, LeakingPages, fill_gaps, new_pages

pytestmark = pytest.mark.timeout(120)

METHODS = ["fork", "spawn", "forkserver", "portable"]
LIMIT = "100MB"
LENGTH = 40


def how(method: str) -> dict[str, Any]:
    return {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}


def flat(loader: Any) -> list[int]:
    return [int(value) for batch in loader for value in batch]


@pytest.mark.parametrize(("method", "batch_size"), [*((method, 2) for method in METHODS), ("fork", 8)])
def test_samples_of_a_worker_that_leaks_are_loaded_by_another(method: str, batch_size: int, tmp_path: Path) -> None:
    """None is passed over, and none is written down; that the worker kept too much is told."""
    file = tmp_path / "skipped"
    care = {"on_error": "skip", "skipped_file": file, "max_retries": 0}
    with DataLoader(
        LeakingPages(LENGTH, 10 * MB), batch_size, num_workers=2, memory_limit=LIMIT, **care, **how(method)
    ) as loader:
        assert flat(loader) == list(range(LENGTH))
        assert loader.skipped_samples == []
        assert {found.cause for found in loader.incidents} == {"over memory_limit"}
        assert {found.done for found in loader.incidents} <= {"retried", "restarted"}
        assert "kept" in loader.incidents[0].because
        assert loader.stats().recycled + loader.stats().restarts >= 1
    assert not file.exists() or len(file.read_text().splitlines()) <= 1


def test_with_raise_nothing_is_raised_for_what_a_worker_keeps() -> None:
    with DataLoader(LeakingPages(LENGTH, 10 * MB), 4, num_workers=2, memory_limit=LIMIT) as loader:
        assert flat(loader) == list(range(LENGTH))


class CachingWithOneLarge(Dataset[torch.Tensor]):
    """A worker keeps 110 MB from its first sample on. Sample 5 needs 185 MB, sample 9 more than there is."""

    def __init__(self) -> None:
        self.filling = fill_gaps()  # a forked worker would find room in what it inherits

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        scratch = np.ones({5: 185, 9: 600}.get(index, 1) * MB, dtype=np.uint8)
        if not KEPT and index != 5:
            KEPT.append(np.ones(110 * MB, dtype=np.uint8))
        return torch.tensor(index + 0 * int(scratch[-1]))


def test_a_sample_that_is_too_large_by_itself_is_blamed_by_the_second_worker(tmp_path: Path) -> None:
    """And one that fits where nothing is kept is not."""
    file = tmp_path / "skipped"
    care = {"on_error": "skip", "skipped_file": file}
    with DataLoader(CachingWithOneLarge(), 1, num_workers=1, memory_limit="200MB", **care) as loader:
        assert flat(loader) == [index for index in range(12) if index != 9]
        assert [sample.index for sample in loader.skipped_samples] == [9]
        assert [(found.sample_index, found.done) for found in loader.incidents] == [
            (5, "retried"),
            (9, "retried"),
            (9, "skipped"),
        ]
    assert file.read_text().splitlines()[-1].startswith('{"index":9') or '"index": 9' in file.read_text()


def test_a_sample_that_asks_for_too_much_at_once_is_blamed_at_once() -> None:
    """Its worker keeps nothing: another would refuse it as well."""

    class OneLarge(CachingWithOneLarge):
        def __getitem__(self, index: int) -> torch.Tensor:
            return (
                torch.tensor(index + len(np.ones(600 * MB, dtype=np.uint8)) * 0) if index == 9 else torch.tensor(index)
            )

    with DataLoader(OneLarge(), 1, num_workers=1, memory_limit="200MB", on_error="skip") as loader:
        assert flat(loader) == [index for index in range(12) if index != 9]
        assert [found.done for found in loader.incidents] == ["skipped"]
        assert loader.stats().recycled == 0


class LeakingShared(Dataset[torch.Tensor]):
    """Keeps shared memory, which the kernel's limit does not count: the supervisor sees it, in its own time. With far
    too much of it a sample stays until its worker is ended.
    """

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        kept = mmap.mmap(-1, 60 * MB)
        kept.write(b"x" * len(kept))
        KEPT.append(kept)
        if len(KEPT) == 6:
            stay("asleep")
        return torch.tensor(index)


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "portable"])
def test_a_worker_that_was_ended_for_what_it_kept_is_no_fault_of_a_sample(method: str) -> None:
    """With no further attempt allowed to a sample."""
    care = {"on_error": "skip", "max_retries": 0, "max_restarts": 0}
    with DataLoader(LeakingShared(), 1, num_workers=1, memory_limit="200MB", **care, **how(method)) as loader:
        assert flat(loader) == list(range(12))
        assert {found.cause for found in loader.incidents} == {"over memory_limit"}
        assert loader.stats().restarts >= 1


class LeakingStream(IterableDataset[torch.Tensor]):
    """Knows its place, so that it need not be run again from its start."""

    def __init__(self) -> None:
        self.done = 0

    def __iter__(self) -> LeakingStream:
        return self

    def __next__(self) -> torch.Tensor:
        info = get_worker_info()
        assert info is not None
        if self.done * info.num_workers + info.id >= LENGTH:
            raise StopIteration
        KEPT.append(new_pages(10 * MB))
        self.done += 1
        return torch.tensor((self.done - 1) * info.num_workers + info.id)

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def test_an_iterable_that_knows_its_place_goes_on_in_another_worker() -> None:
    with DataLoader(LeakingStream(), 2, num_workers=2, memory_limit=LIMIT, on_error="skip") as loader:
        assert sorted(flat(loader)) == list(range(LENGTH))
        assert loader.skipped_samples == []
