"""How hypothesis runs here: as in tests/unit. And where the table of reproducers is: every cause is run for real."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).parents[1] / "diagnosis"))  # reproducers, striking, places

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a busy machine is no failure
settings.register_profile("steady", derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW)
settings.load_profile("steady")
