"""For tests of commands: what a command puts on the path of modules is gone after its test, and it leaves no variable.

A spawned process gets both: a `json.py` that a test made would be its `json`.

Runs in: the test process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def the_process_stays_as_it_was() -> Iterator[None]:
    """Without `monkeypatch`: what a test has changed with that is undone before this looks."""
    path, variables = sys.path, _variables()
    sys.path = [*path]
    yield
    sys.path = path
    assert _variables() == variables


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_")}
