"""An epoch to be watched: a sample raises and is skipped, another hangs. Says "ready ID" and stays in `next()`.

Usage: watched_epoch.py [NAME]
NAME: what the record says that the script is called.
Runs in: a child of the test process.
"""

from __future__ import annotations

import sys
import time

from torch.utils.data import Dataset

from holdfast import DataLoader

RAISES, HANGS, BATCH_SIZE = 5, 41, 4
MESSAGE = "[bold]no\x1b[2J JPEG\x07"


class Watched(Dataset[int]):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> int:
        if index == RAISES:
            raise ValueError(MESSAGE)
        if index == HANGS:
            time.sleep(3600)
        return index


def main() -> None:
    if len(sys.argv) > 1:
        sys.argv[0] = sys.argv[1]
    loader = DataLoader(Watched(), BATCH_SIZE, num_workers=2, on_error="skip", memory_limit="2GB")
    batches = iter(loader)
    for _ in range(HANGS // BATCH_SIZE):
        next(batches)
    print("ready", loader.incidents[0].id.partition(".")[0], flush=True)
    next(batches)


if __name__ == "__main__":
    main()
