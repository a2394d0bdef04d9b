"""How hypothesis runs here: the same examples every time, and no clock. And what several files share.

`pytest tests/unit --hypothesis-profile=explore` looks further, with new random examples in every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a busy machine is no failure

settings.register_profile("steady", derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW)
settings.register_profile("explore", max_examples=2000, deadline=None, database=None, suppress_health_check=_SLOW)
settings.load_profile("steady")


@pytest.fixture
def generators_restored() -> Iterator[None]:
    """For tests that draw from the global generators, or seed them. They have torch."""
    import torch

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])
