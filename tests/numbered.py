"""Samples that are full of their own number. Runs in: the test process, worker process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset


class Numbered(Dataset[Any]):
    """Sample k is full of k. Some of them kill their worker, once."""

    def __init__(self, length: int, width: int = 3000, deadly: frozenset[int] = frozenset(), folder: str = "") -> None:
        self.length, self.width, self.deadly, self.folder = length, width, deadly, folder

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index in self.deadly:
            marker = Path(self.folder, str(index))
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((self.width,), index, dtype=torch.int32)


def numbers(start: int, count: int, width: int = 3000) -> torch.Tensor:
    return torch.arange(start, start + count, dtype=torch.int32)[:, None].expand(count, width)
