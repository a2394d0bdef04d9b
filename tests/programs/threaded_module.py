"""A module that starts a thread when it is imported, and a dataset in it that holds multiprocessing's objects.

Runs in: a child of the test process, and what it starts.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from torch import Tensor, tensor
from torch.utils.data import Dataset

LENGTH = 16
forever = threading.Event()
threading.Thread(target=forever.wait, name="started-on-import", daemon=True).start()


class Threaded(Dataset[Tensor]):
    """Sample i is i and whether the process that loaded it has the module's thread, which no fork would have."""

    def __init__(self, counter: Any, lock: Any, shared: Tensor) -> None:
        self.counter, self.lock, self.shared = counter, lock, shared

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Tensor:
        with self.lock:
            self.counter.value += 1
        self.shared[index] = index
        has_thread = any(thread.name == "started-on-import" for thread in threading.enumerate())
        return tensor([index, int(has_thread), os.getpid()])
