"""Garbage collections in workers: of what the user's code makes there, not of the interpreter they were born with."""

from __future__ import annotations

import gc
import resource
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from holdfast import DataLoader

METHODS = ("fork", "forkserver", "spawn", "portable")


class Cycle:
    """In itself: only a collection finds it."""

    def __init__(self) -> None:
        self.me = self


class Collecting(Dataset[torch.Tensor]):
    """A sample is what a full collection finds in its worker."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        cycle = weakref.ref(Cycle())
        was_found = cycle() is not None  # it is alive
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        gc.collect()
        touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        was_found = was_found and cycle() is None
        return torch.tensor([gc.isenabled(), was_found, gc.get_freeze_count(), len(gc.get_objects()), touched])


@pytest.mark.parametrize("method", METHODS)
def test_a_collection_leaves_alone_what_a_worker_was_born_with(method: str) -> None:
    """To look at all of torch takes as long as many small batches, and copies every page that is shared with others."""
    how: dict[str, Any] = {"backend": method} if method == "portable" else {"multiprocessing_context": method}
    with DataLoader(Collecting(), None, num_workers=1, **how) as loader:
        (found,) = loader
    is_enabled, was_found, born_with, looked_at, touched_pages = found.tolist()
    assert is_enabled
    assert was_found
    assert looked_at < born_with / 10
    assert touched_pages < born_with / 100
