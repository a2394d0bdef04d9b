"""For tests of commands: what a command puts on the path of modules is gone after its test.

A spawned process gets that path too: a `json.py` that a test made would be its `json`.

Runs in: the test process.
"""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def the_path_of_modules_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
