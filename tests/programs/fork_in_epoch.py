"""Forks in mid-epoch. The child ends as a Python program does, with the iterator alive; the parent goes on to the end.

Runs in: a child of the test process.
"""

from __future__ import annotations

import os
import sys

import torch

from helpers import Numbers, numbers, say
from holdfast import DataLoader

BATCHES = 60


def main() -> None:
    for persistent in (False, True):
        loader = DataLoader(Numbers(BATCHES * 4), batch_size=4, num_workers=2, persistent_workers=persistent)
        iterator = iter(loader)
        held = next(iterator)
        for number in range(1, BATCHES):
            if number in (1, 20, 40):
                child = os.fork()
                if child == 0:
                    sys.exit(7)
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == 7, status
            assert torch.equal(next(iterator), numbers(number * 4, 4, 4)), number
        assert torch.equal(held, numbers(0, 4, 4))
        loader.close()
    say("whole epoch")


if __name__ == "__main__":
    main()
