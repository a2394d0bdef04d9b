"""Datasets that take memory: for a moment, for good, or more with every sample. Runs in: worker process."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

MB = 1 << 20
KEPT: list[Any] = []
"""By this process."""
_FOR_A_MAPPING = 33 * MB  # the heap is never made larger for so much at once
_SEEN_S = 0.5  # for how long memory is held that a supervisor is to see, which looks five times a second


def give_back_gaps() -> None:
    """What this process's heap holds and does not use, to the kernel.

    A forked worker inherits it: a leak that goes into the gaps of its parent's heap is no growth until they are full,
    and how large they are depends on what the process of the tests has run before.
    """
    ctypes.CDLL(None).malloc_trim(0)


class Filling(list[np.ndarray[Any, Any]]):
    """Of the gaps of one process, and of those that are forked while it is kept. It does not travel to others."""

    def __reduce__(self) -> Any:
        return Filling, ()


def fill_gaps() -> Filling:
    """Blocks that lie in the large gaps of this process's heap, for as long as they are kept.

    What is asked for comes from a gap if one is large enough. The kernel counted that long ago, and refuses nothing;
    and once it is freed it stays with the process. Where there is no gap, what is larger than 32 MB is always a mapping
    of its own, which comes and goes.
    """
    end_of_heap = ctypes.CDLL(None).sbrk
    end_of_heap.restype, end_of_heap.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    blocks = Filling()
    while (block := np.empty(_FOR_A_MAPPING, dtype=np.uint8)).ctypes.data < end_of_heap(0):
        blocks.append(block)
    return blocks


def new_pages(nbytes: int) -> np.ndarray[Any, Any]:
    """Past any gaps of the heap: of these the kernel knows that they are new, and refuses them over its limit."""
    pages = np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)
    pages[:] = 1
    return pages


class Hungry(Dataset[torch.Tensor]):
    """Sample k takes `taken_mb` for `held_s`, from sample `first` on, and draws a random number."""

    def __init__(self, length: int, taken_mb: int, first: int = 0, held_s: float = 0.15) -> None:
        self.length, self.taken_mb, self.first, self.held_s = length, taken_mb, first, held_s
        self.filling = fill_gaps()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.first:
            scratch = np.ones(self.taken_mb * MB, dtype=np.uint8)
            self.hold()
            assert scratch[-1]
        return torch.tensor([index, float(torch.rand(()))], dtype=torch.float64)

    def hold(self) -> None:
        time.sleep(self.held_s)


class HungryTogether(Hungry):
    """Samples take what they take once the file `go` is there, and hold it until a worker that took as much was ended
    for it, or `held_s` are over.
    """

    def __init__(self, length: int, taken_mb: int, first: int, go: Path, held_s: float) -> None:
        super().__init__(length, taken_mb, first, held_s)
        self.go = go

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.first:
            self._wait_until(self.go.exists)
            self.go.with_suffix(f".{os.getpid()}").touch()  # now: it may be ended before it has all of it
        return super().__getitem__(index)

    def hold(self) -> None:
        self._wait_until(
            lambda: any(
                not psutil.pid_exists(int(taker.suffix[1:])) for taker in self.go.parent.glob(f"{self.go.name}.*")
            )
        )

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + self.held_s
        while time.monotonic() < until_s and not is_so():
            time.sleep(0.01)


class HungryThenBad(Hungry):
    """Sample `first` takes too much at the first attempt, until its worker is ended for it; then it raises."""

    def __init__(self, length: int, taken_mb: int, first: int, tried: Path, held_s: float) -> None:
        super().__init__(length, taken_mb, first, held_s)
        self.tried = tried

    def __getitem__(self, index: int) -> torch.Tensor:
        if index != self.first:
            return torch.tensor([index])
        if self.tried.exists():
            raise ValueError("bad, but small")
        self.tried.touch()
        return super().__getitem__(index)


class Keeping(Dataset[torch.Tensor]):
    """A worker keeps so much from its first sample on."""

    def __init__(self, length: int, kept_mb: int) -> None:
        self.length, self.kept_mb = length, kept_mb
        self.filling = fill_gaps()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if not KEPT:
            KEPT.append(np.ones(self.kept_mb * MB, dtype=np.uint8))
        return torch.tensor([index])


class KeepingAndHungry(Hungry):
    """A worker keeps so much from its first sample on, and samples take more, for a moment, from one on."""

    def __init__(self, length: int, kept_mb: int, taken_mb: int, first: int) -> None:
        super().__init__(length, taken_mb, first)
        self.kept_mb = kept_mb

    def __getitem__(self, index: int) -> torch.Tensor:
        if not KEPT:
            KEPT.append(np.ones(self.kept_mb * MB, dtype=np.uint8))
        return super().__getitem__(index)


class KeepingStream(IterableDataset[torch.Tensor]):
    """The same, of which each worker has a part."""

    def __init__(self, length: int, kept_mb: int) -> None:
        self.dataset = Keeping(length, kept_mb)

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        return (self.dataset[index] for index in range(info.id, len(self.dataset), info.num_workers))


class DyingStream(IterableDataset[torch.Tensor]):
    """Element 3 of the first worker ends it, once. Who runs the stream again after that takes `taken_mb` for each, for
    `held_s`; the other workers keep `kept_mb`.
    """

    def __init__(self, length: int, taken_mb: int, kept_mb: int, marker: Path, held_s: float = _SEEN_S) -> None:
        self.length, self.taken_mb, self.kept_mb, self.marker = length, taken_mb, kept_mb, marker
        self.held_s = held_s
        self.filling = fill_gaps()

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        is_again = self.marker.exists() and not info.id
        if info.id:
            KEPT.append(np.ones(self.kept_mb * MB, dtype=np.uint8))
        for number, index in enumerate(range(info.id, self.length, info.num_workers)):
            if number == 3 and not info.id and not is_again:
                self.marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            scratch = np.ones((self.taken_mb if is_again else 1) * MB, dtype=np.uint8)
            time.sleep(self.held_s if is_again else 0.01)
            assert scratch[-1]
            del scratch  # before the next is made, or there would be two
            yield torch.tensor([index])


class Leaking(Dataset[torch.Tensor]):
    """Every sample leaves so many bytes behind."""

    def __init__(self, length: int, leaked: int) -> None:
        give_back_gaps()
        self.length, self.leaked = length, leaked

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        KEPT.append(self.take())
        time.sleep(0.001)
        return torch.tensor([index])

    def take(self) -> np.ndarray[Any, Any]:
        return np.ones(self.leaked, dtype=np.uint8)


class LeakingPages(Leaking):
    """The same, and not from the heap."""

    def take(self) -> np.ndarray[Any, Any]:
        return new_pages(self.leaked)


class Reading(Dataset[int]):
    """Reads a list of the main process, object by object.

    What is copied is counted after some CPU time, and the later the more memory there is to be looked at: the process
    of the tests may have a great deal. An epoch takes twice as long.
    """

    def __init__(self, texts: list[str], length: int) -> None:
        self.texts, self.length = texts, length
        self.each_s = max(4.0, 5.0 * psutil.Process().memory_info().rss / (1 << 30)) / length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        until_s = time.thread_time() + self.each_s  # a worker that waits copies nothing: it is its CPU time that counts
        found = sum(len(text) for text in self.texts[index :: self.length])
        while time.thread_time() < until_s:
            pass
        return found
