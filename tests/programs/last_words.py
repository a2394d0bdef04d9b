"""A user's script whose dataset calls a native function that aborts. Prints the incident that comes of it.

Usage: last_words.py LIBRARY FUNCTION fork | spawn | forkserver | portable
Runs in: a child of the test process.
"""

from __future__ import annotations

import ctypes
import sys
import warnings

import torch
from torch.utils.data import Dataset

from holdfast import DataLoader, HoldfastWarning, WorkerError


class Native(Dataset[torch.Tensor]):
    """Sample 1 is decoded by a library, which does not survive it."""

    def __init__(self, library: str, function: str) -> None:
        self.library = library
        self.function = function

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            sys.stderr.write("decoding sample 1\n")
            getattr(ctypes.CDLL(self.library), self.function)()
        return torch.tensor(index)


def main(library: str, function: str, method: str) -> None:
    how = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    warnings.simplefilter("ignore", HoldfastWarning)  # of the restart: what the worker itself wrote is looked at
    loader = DataLoader(Native(library, function), num_workers=2, max_retries=0, **how)
    try:
        for _ in loader:
            pass
    except WorkerError as error:
        print(error.incident and error.incident.cause, error.incident and error.incident.because, sep="\n")
    loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
