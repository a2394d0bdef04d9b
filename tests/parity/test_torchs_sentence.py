"""The sentence that torch has for a worker that is gone stands in our error as well: torch is asked what it is."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from typing import Any

import pytest
import torch.utils.data

import holdfast
from holdfast.errors import WorkerError

HOW = ["SIGSEGV", "SIGKILL", "SIGBUS", "SIGABRT", "SIGTERM", "exit 3"]
OF_A_WORKER = re.compile(r"DataLoader worker \(pid \d+\)[^\n]*")


class Deadly(torch.utils.data.Dataset[int]):
    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 1 and self.how.startswith("SIG"):
            faulthandler.disable()  # pytest's would write the stacks of all threads beside its dots
            os.kill(os.getpid(), signal.Signals[self.how])
        elif index == 1:
            os._exit(int(self.how.removeprefix("exit ")))
        return index


def error_of(module: Any, how: str, **options: Any) -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        for _ in module.DataLoader(Deadly(how), 1, num_workers=1, multiprocessing_context="fork", **options):
            pass
    return caught.value


@pytest.mark.parametrize("how", HOW)
def test_our_error_has_torchs_sentence(how: str) -> None:
    """But for the pid, word for word; torch may add advice to it."""
    error = error_of(holdfast, how, max_retries=0, max_restarts=0)
    assert isinstance(error, WorkerError)
    (ours,) = OF_A_WORKER.findall(str(error))
    reference = error_of(torch.utils.data, how)
    said = f"{reference}\n{reference.__cause__}"
    assert without_pid(ours) in without_pid(said)


def without_pid(text: str) -> str:
    return re.sub(r"pid \d+", "pid N", text)


def test_a_pool_says_nothing_of_a_data_loader() -> None:
    """Its workers are none."""
    with holdfast.ProcessPoolExecutor(1) as pool:
        error = pool.submit(os._exit, 3).exception()
    assert isinstance(error, WorkerError)
    assert "DataLoader" not in str(error)
