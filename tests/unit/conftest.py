"""How hypothesis runs here: the same examples every time, and no clock.

`pytest tests/unit --hypothesis-profile=explore` looks further, with new random examples in every run.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a busy machine is no failure

settings.register_profile("steady", derandomize=True, deadline=None, database=None, suppress_health_check=_SLOW)
settings.register_profile("explore", max_examples=2000, deadline=None, database=None, suppress_health_check=_SLOW)
settings.load_profile("steady")
