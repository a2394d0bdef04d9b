"""Datasets for `holdfast scan` to load: named on its command line, or used in the test process.

Runs in: worker process of a scan.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

FOR_EVER_S = 24 * 3600.0
SAMPLES = 120
RAISES, SEGFAULTS, EXITS, HANGS, EATS, UNFINISHED = 7, 20, 33, 46, 59, 72
BAD = {RAISES, SEGFAULTS, EXITS, HANGS, EATS, UNFINISHED}
GREY, DOUBLE, NOTHING, SLOW, LARGE = 85, 90, 95, 100, 110
SLOW_S = 0.8  # what the slow one takes: more than a busy machine makes of any other
ODD = {GREY, DOUBLE, NOTHING}


class Faulty(Dataset[Any]):
    """An image and a number, unless it is one of the bad samples, or of the odd ones."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index in BAD:
            _fail(index)
        if index == SLOW:
            time.sleep(SLOW_S)
        if index == 1:
            print("a dataset that prints", flush=True)
        if index == NOTHING:
            return None
        image = torch.zeros(1 if index == GREY else 3, 8, 8, dtype=torch.float64 if index == DOUBLE else torch.float32)
        text = "long " * 1000 if index == LARGE else "short"
        return {"image": image, "label": index % 10, "tokens": torch.zeros(index % 17 + 1), "text": text}


def _fail(index: int) -> None:
    if index == RAISES:
        raise ValueError("not a JPEG file: [bold]starts with <html>\x1b[31m")
    if index == SEGFAULTS:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        ctypes.string_at(0)
    if index == EXITS:
        os._exit(3)
    if index == HANGS:
        time.sleep(FOR_EVER_S)
    if index == EATS:
        torch.zeros(1 << 30, dtype=torch.float64)
    if index == UNFINISHED:
        raise NotImplementedError("palette images")


faulty = Faulty()


class Steady(Dataset[int]):
    """Each sample takes a moment; one in fifty raises. `folder`: where it notes which were loaded.

    As long as there is a file `hold`, none of the second half is loaded: a scan that is to be interrupted is not over
    before, however late that comes.
    """

    def __init__(self, samples: int = 400, folder: str = os.environ.get("SCANNED_FOLDER", "")) -> None:
        self.samples = samples
        self.folder = folder
        self.hold = os.environ.get("SCANNED_HOLD", "")

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        while index >= self.samples // 2 and self.hold and Path(self.hold).exists():
            time.sleep(0.01)
        if self.folder:
            with (Path(self.folder) / "loaded").open("a") as file:
                file.write(f"{index}\n")
        if index % 50 == 25:
            raise OSError(f"cannot read sample {index}")
        return index


steady = Steady


class Many(Dataset[int]):
    """Many bad samples, and many that end their worker."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> int:
        if index % 3 == 0:
            raise ValueError(f"bad {index}")
        if index % 3 == 1:
            os._exit(5)
        return index


many = Many()


class Good(Dataset[torch.Tensor]):
    """Nothing is wrong with it."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(4)


good = Good()


class Lengthless:
    """No dataset can be scanned that does not say how long it is."""

    def __getitem__(self, index: int) -> int:
        return index


lengthless = Lengthless()


class KilledTwice(Dataset[int]):
    """Sample 5 has its worker killed from outside, the first two times."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5:
            times = len(list(self.folder.iterdir()))
            if times < 2:
                (self.folder / str(times)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return index


class Listed(Dataset[int]):
    """Has `__getitems__` and nothing else."""

    def __len__(self) -> int:
        return 10

    def __getitems__(self, indices: list[int]) -> list[int]:
        if 3 in indices:
            raise ValueError("not this one")
        return indices


class Elements(IterableDataset[int]):
    """Shares its numbers out among the workers. `ends`: what the generator, or its worker, does at that number."""

    def __init__(self, ends: int | None = None, how: str = "raise") -> None:
        self.ends, self.how = ends, how

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        for number in range(info.id, 60, info.num_workers):
            if number == self.ends and self.how == "raise":
                raise ValueError(f"bad element {number}")
            if number == self.ends:
                os._exit(4)
            yield number


elements = Elements()


class Counting:
    """An iterator that goes on after an exception, and knows its state."""

    def __init__(self, folder: Path, last: int) -> None:
        self.folder, self.last, self.number = folder, last, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.number >= self.last:
            raise StopIteration
        number, self.number = self.number, self.number + 1
        with (self.folder / "loaded").open("a") as file:
            file.write(f"{number}\n")
        if number == 30:
            raise ValueError("a hole")
        time.sleep(0.05)
        return number

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]


class Stateful(IterableDataset[int]):
    """Such an iterable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[int]:
        return Counting(self.folder, 60)


class Remembering(IterableDataset[int]):
    """Knows its state itself, and how often it was begun."""

    begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return iter(range(3))

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...
