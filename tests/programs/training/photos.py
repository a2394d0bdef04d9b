"""The data of the training scripts beside it: numbers, of which one sample may crash. Knows torch, and nothing else.

Runs in: main and worker processes of a test.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch
from torch.utils.data import Dataset

SAMPLES, BAD = 48, 17


class Photos(Dataset):
    """`PHOTOS=always`: one sample ends every process that loads it. A path: the first only, which makes that file."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index == BAD:
            crash(os.environ.get("PHOTOS", ""))
        x = torch.linspace(-1, 1, 4) * (index % 7)
        return x, x.sum().reshape(1)


def crash(when: str) -> None:
    if not when or (when != "always" and Path(when).exists()):
        return
    if when != "always":
        Path(when).touch()
    ctypes.string_at(0)
