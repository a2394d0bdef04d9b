"""Datasets with samples that fail in every way, and loaders that leave a record of it: for `holdfast replay`.

As a program: one run for each dataset, told from one another by the names of their classes.

Runs in: a child program, and whatever replays its incidents.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

HUGE = 200_000_000
LIMITS: dict[str, Any] = {"sample_timeout": 0.5, "memory_limit": "300MB"}


def fail(how: str) -> None:
    if how == "raises":
        raise ValueError("not a [bold]JPEG[/bold] \x1b[31mfile")
    if how == "crashes":
        ctypes.string_at(0)
    if how == "hangs":
        time.sleep(3600)
    if how == "takes memory":
        torch.ones(HUGE)


class Photos(Dataset[dict[str, Any]]):
    """Some are bad. It prints, as datasets do."""

    bad: ClassVar[dict[int, str]] = {3: "raises", 7: "crashes", 11: "hangs", 13: "takes memory"}

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        print("loading", index)
        fail(self.bad.get(index, ""))
        return {"image": torch.rand(3, 8, 8), "label": index, "boxes": [torch.zeros(2, 4), ("a name", b"1234")]}


class Mended(Photos):
    """The same, with every file repaired."""

    bad: ClassVar[dict[int, str]] = {}


class Few(Mended):
    def __len__(self) -> int:
        return 2


class Sometimes(Mended):
    """Fails for every other random number."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if torch.rand(()).item() < 0.5:
            fail("raises")
        return super().__getitem__(index)


class ByName(Dataset[int]):
    """Its indices are texts and tuples."""

    def __getitem__(self, index: Any) -> int:
        if index in ("b [x]", ("c", 2)):
            fail("raises")
        return 1


class Stream(IterableDataset[int]):
    """Each worker has a part of it."""

    how = "raises"

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for number in range(info.id, 40, info.num_workers):
            if number == 9:
                fail(self.how)
            yield number


class CrashingStream(Stream):
    how = "crashes"


class MendedStream(Stream):
    how = ""


class NoDataset:
    """Neither of them."""


def run(dataset: Any, **arguments: Any) -> None:
    import holdfast

    os.environ["HOLDFAST_TARGET"] = f"replayed:{type(dataset).__name__}"
    with holdfast.DataLoader(dataset, num_workers=2, on_error="skip", **arguments) as loader:
        batches = iter(loader)
        for _ in range(100):
            try:
                next(batches)
            except StopIteration:
                break
            except Exception as error:
                print(type(error).__name__)


if __name__ == "__main__":
    import replayed  # by the name that a replay will find

    run(replayed.Photos(), batch_size=4, **LIMITS)
    run(replayed.ByName(), batch_size=1, sampler=["a", "b [x]", ("c", 2)])
    run(replayed.Stream(), batch_size=4)
    run(replayed.CrashingStream(), batch_size=4)
