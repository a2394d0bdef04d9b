"""Children that crash, started in both ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from children import STARTS, Pages
from holdfast.diagnosis.native.crash_page import can_have_registers


@pytest.fixture(params=STARTS)
def pages(request: pytest.FixtureRequest) -> Iterator[Pages]:
    """What a child writes on; `pages.run(crashing.abort)` runs one to its death."""
    if not can_have_registers():
        pytest.skip("registers are recorded on x86_64 Linux with glibc only")
    made = Pages(request.param)
    yield made
    made.close()
