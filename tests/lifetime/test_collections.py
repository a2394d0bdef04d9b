"""Garbage collections in workers: of what the user's code makes there, not of the interpreter they were born with."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import resource
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from holdfast import DataLoader, ProcessPoolExecutor

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
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        gc.collect()
        touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        return torch.tensor([gc.isenabled(), cycle() is None, gc.get_freeze_count(), len(gc.get_objects()), touched])


@pytest.fixture
def not_collecting() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("not_collecting")
def test_a_forked_worker_collects_as_its_main_process_does() -> None:
    """It is off there if the user had turned it off here, as with torch."""
    for make in (DataLoader, torch.utils.data.DataLoader):
        loader = make(Collecting(), None, num_workers=1, multiprocessing_context="fork")
        (found,) = loader
        assert not found[0], make
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert not pool.submit(gc.isenabled).result()


DOES_NOT_COLLECT = """
import gc

gc.disable()


def collects():
    return gc.isenabled()
"""


def test_a_new_interpreter_collects_unless_a_module_of_the_users_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody of ours had turned it off there, so nobody turns it on."""
    (tmp_path / "does_not_collect.py").write_text(DOES_NOT_COLLECT)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("does_not_collect")
    gc.enable()
    with ProcessPoolExecutor(1, backend="portable") as pool:
        assert not pool.submit(module.collects).result()


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
