"""For the tests that need a real device: they are skipped, with the reason, where there is none.

CUDA starts threads and opens files when it is first used, and more with the first stream, copy and kernel. All that is
done before the first test, so that the checks for what is left behind see only what a test left.

Runs in: the test process.
"""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    device = torch.device("cuda", torch.cuda.current_device())
    streams = [torch.cuda.Stream() for _ in range(4)]
    for stream in streams:
        with torch.cuda.stream(stream):
            (torch.zeros(1 << 20).pin_memory().to(device, non_blocking=True) + 1).sum().item()
            torch.cuda._sleep(1000)
    torch.cuda.synchronize()
    return device
