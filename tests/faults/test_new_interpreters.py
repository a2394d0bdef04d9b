"""Supervisors that must not be forked: their workers are new interpreters, and the same otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import Numbers, run_program
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_are_new_interpreters_where_an_import_starts_threads(method: str) -> None:
    """Every worker, also one that replaces a killed one, has the thread that its own import started; a fork would not.

    The dataset's lock, counter and shared tensor are the main process's own all the same.
    """
    assert run_program("threads_on_import.py", method).splitlines()[-1] == "thread True processes 3"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_are_forks_of_the_supervisor_where_no_import_starts_any(method: str) -> None:
    """Also with a BLAS that starts its threads to be told that there is to be one."""
    assert np.dot(np.ones(4), np.ones(4)) == 4
    with DataLoader(Numbers(8), batch_size=2, num_workers=2, multiprocessing_context=method) as loader:
        assert len(list(loader)) == 4
        assert loader.stats().new_interpreters is None
