"""A soft limit of 256 descriptors (torch's "Too many open files") is enough for 8 workers and all batches kept."""

from __future__ import annotations

import pytest

from helpers import run_program

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize("sizes", ["same", "growing"])
def test_256_descriptors_are_enough_for_8_workers_and_every_batch_kept(sizes: str) -> None:
    """1000 kept batches of one size, or 400 whose size grows by a factor of a thousand; two epochs of them."""
    assert run_program("few_descriptors.py", sizes).startswith("whole epochs")
