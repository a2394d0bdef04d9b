"""An epoch that is short of memory, in a cgroup of its own, with torch's loader or ours. Prints JSON.

Usage: memory_in_cgroup.py CGROUP LIMIT_BYTES torch|holdfast WORKLOAD [ARGUMENTS as JSON]
Runs in: a child of the test process.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))  # first of all: what comes counts

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.utils.data  # noqa: E402
from torch.utils.data import Dataset, IterableDataset, get_worker_info  # noqa: E402

import holdfast  # noqa: E402

LIMIT = int(sys.argv[2])
KEPT: list[Any] = []


class Program2(Dataset[torch.Tensor]):
    """Of a user's account: a large tensor in the dataset, and another as every sample."""

    def __init__(self) -> None:
        self.floats = LIMIT // 4 // 4
        self.large_data = torch.randn(self.floats)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        sample = torch.randn(self.floats)
        sample[0] = index
        return sample


class Crowd(Dataset[torch.Tensor]):
    """Each sample takes half of the memory for a moment: four workers need twice of what there is."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        scratch = np.ones(LIMIT // 2, dtype=np.uint8)
        time.sleep(0.05)
        return torch.tensor([float(index) * scratch[-1]])


class LateCrowd(Crowd):
    """The same, but the first samples are small: nothing could be learned from them."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) if index >= 8 else torch.tensor([float(index)])


class Keepers(Dataset[torch.Tensor]):
    """Each worker keeps two fifths of the memory from its first sample on."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if not KEPT:
            KEPT.append(np.ones(2 * LIMIT // 5, dtype=np.uint8))
        return torch.tensor([float(index)])


class KeepingStream(IterableDataset[torch.Tensor]):
    """The same, and each worker has a part of the elements."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is not None
        return (Keepers()[index] for index in range(info.id, 24, info.num_workers))


class Leak(Dataset[torch.Tensor]):
    """Every sample leaves a megabyte behind."""

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> torch.Tensor:
        KEPT.append(np.ones(1 << 20, dtype=np.uint8))
        return torch.tensor([float(index)])


class TooLarge(Program2):
    """Not even one batch fits."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4 * self.floats)


WORKLOADS: dict[str, tuple[type, int]] = {
    "program2": (Program2, 1),
    "crowd": (Crowd, 1),
    "late crowd": (LateCrowd, 1),
    "keepers": (Keepers, 1),
    "keeping stream": (KeepingStream, 1),
    "leak": (Leak, 10),
    "too large": (TooLarge, 1),
}


def main() -> None:
    name, workload = sys.argv[3:5]
    arguments = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    kind, batch_size = WORKLOADS[workload]
    dataset = kind()
    make: Any = holdfast.DataLoader if name == "holdfast" else torch.utils.data.DataLoader
    loader = make(dataset, batch_size=batch_size, num_workers=4, **arguments)
    found, error = [], ""
    began = time.monotonic()
    try:
        for batch in loader:
            found += batch[:, 0].tolist()
            del batch  # a batch that is kept while the next one is loaded must fit beside it
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    said: dict[str, Any] = {"found": found, "error": error, "seconds": time.monotonic() - began}
    if name == "holdfast":
        said["counts"] = dict(loader.incidents.counts)
        said["incidents"] = [f"{incident} | {incident.because}" for incident in loader.incidents][:40]
        stats = loader.stats()
        said["restarts"], said["recycled"] = stats.restarts, stats.recycled
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
