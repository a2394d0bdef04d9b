"""Shared data where workers are new interpreters, because a module of the dataset starts a thread; one is killed.

Usage: shared_new_interpreters.py spawn | forkserver
Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Any

import numpy as np
from torch.utils.data import Dataset

import holdfast
from holdfast.sharing.arrays import find_array


class Table(Dataset[Any]):
    def __init__(self, companion: object) -> None:
        self.companion = companion  # brings its module along
        self.numbers = holdfast.share(np.arange(20))
        self.names, self.pairs = holdfast.share(([str(number) for number in range(20)], {n: -n for n in range(20)}))

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        assert find_array(self.numbers)
        return [int(self.numbers[index]) + int(self.names[index]) + self.pairs[index], os.getpid()]


def main(method: str) -> None:
    warnings.simplefilter("ignore", holdfast.HoldfastWarning)  # of the restart, which is printed below
    from threaded_module import Threaded  # not at the top: the supervisor is to import it, not find it

    loader = holdfast.DataLoader(
        Table(Threaded), batch_size=None, num_workers=2, prefetch_factor=1, multiprocessing_context=method
    )
    iterator = iter(loader)
    rows = [next(iterator)]
    os.kill(rows[0][1], signal.SIGKILL)
    rows.extend(iterator)
    assert [row[0] for row in rows] == list(range(20)), rows
    print(loader.stats().restarts, loader.stats().new_interpreters)


if __name__ == "__main__":
    main(sys.argv[1])
