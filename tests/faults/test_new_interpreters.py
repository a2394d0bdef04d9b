"""Supervisors that must not be forked: their workers are new interpreters, and the same otherwise."""

from __future__ import annotations

import pytest

from helpers import run_program

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_are_new_interpreters_where_an_import_starts_threads(method: str) -> None:
    """Every worker, also one that replaces a killed one, has the thread that its own import started; a fork would not.

    The dataset's lock, counter and shared tensor are the main process's own all the same.
    """
    assert run_program("threads_on_import.py", method).splitlines()[-1] == "thread True processes 3"
