"""What the recovery tests share: datasets that count how often they are asked, over all processes.

Runs in: the test process, and the workers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from holdfast import DataLoader
from holdfast.board_rows import Phase


class Calls:
    """Who was asked for, by any process: lines of a file, each written in one piece."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, what: object) -> int:
        """Returns how often it has been noted, with this time."""
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(fd, f"{what}\n".encode())
        finally:
            os.close(fd)
        return self.counts()[str(what)]

    def counts(self) -> Counter[str]:
        return Counter(self.path.read_text().splitlines()) if self.path.exists() else Counter()


class Asked(Dataset[torch.Tensor]):
    """Sample i is i. Those in `errors` raise what is given there, at their first `times` attempts of all processes."""

    def __init__(self, length: int, calls: Calls, errors: dict[int, BaseException], times: int = 1 << 30) -> None:
        self.length = length
        self.calls = calls
        self.errors = errors
        self.times = times

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        attempt = self.calls.note(index)
        if index in self.errors and attempt <= self.times:
            raise self.errors[index]
        return torch.tensor(index)


def share_of(length: int) -> range:
    """The part of `range(length)` that is this worker's."""
    info = get_worker_info()
    return range(length) if info is None else range(info.id, length, info.num_workers)


class AskedStream(IterableDataset[torch.Tensor]):
    """The same as an iterable, by an iterator that is asked again for an element that raised."""

    def __init__(self, length: int, calls: Calls, errors: dict[int, BaseException], times: int = 1 << 30) -> None:
        self.loads = Asked(length, calls, errors, times)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return _Asking(self.loads)


class _Asking(Iterator[torch.Tensor]):
    def __init__(self, loads: Asked) -> None:
        self.loads = loads
        self.left = list(share_of(len(loads)))

    def __next__(self) -> torch.Tensor:
        if not self.left:
            raise StopIteration
        sample = self.loads[self.left[0]]
        self.left.pop(0)
        return sample


def has_finished(iterator: Any, worker_id: int) -> bool:
    """Whether a worker has done all it was sent, and waits for more. Looks into the iterator: nothing else can tell."""
    doing = iterator._backend._board.doing(worker_id)
    sent = [unit for unit in iterator._units if iterator._units[unit].worker_id == worker_id]
    return doing.phase is Phase.IDLE and (not sent or doing.unit == max(sent))


def flat(loader: DataLoader[Any]) -> list[int]:
    """The samples of one epoch, in the order of delivery."""
    return [int(value) for batch in loader for value in batch.reshape(-1)]


def stubborn(iterator: Iterator[Any], limit: int = 200) -> list[Any]:
    """The batches, as lists, and the errors of one epoch, of a user who goes on after each error."""
    outcomes: list[Any] = []
    for _ in range(limit):
        try:
            outcomes.append(next(iterator).tolist())
        except StopIteration:
            return outcomes
        except Exception as error:
            outcomes.append(error.with_traceback(None))
    raise AssertionError("the epoch does not end")
