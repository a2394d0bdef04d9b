"""The parity tests fork by default, whatever the platform's own default is: it is by far the fastest.

spawn and forkserver have tests of their own: test_start_methods.py.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from holdfast.workers import crowding


@pytest.fixture(autouse=True, scope="package")
def _fork_by_default() -> Iterator[None]:
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture(autouse=True, scope="package")
def _crowding_was_said() -> Iterator[None]:
    """Ours about a quota, or threads, that torch does not know: once in a process, so the tests come after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowding, "_warned", [True])
        yield
