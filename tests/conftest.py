"""For every test: nothing may be left behind.

After each test, once its garbage is collected: no process, descriptor, name in /dev/shm or thread more than before,
looked at again and again until a deadline; then the test fails with the stacks of what is left.
A test that failed on its own is not checked: its traceback keeps its objects alive.

Runs in: the test process.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import psutil
import pytest

from holdfast.testing import Leaks, leaks_since, snapshot

LEAK_DEADLINE_S = 15.0
_failed = pytest.StashKey[bool]()


def pytest_collection_finish() -> None:
    """What the imports made stays until the end: the collection after each test need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.stash[_failed] = True
    return report


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = snapshot()
    yield
    if request.node.stash.get(_failed, False):
        return
    gc.collect()
    leaks = leaks_since(before, LEAK_DEADLINE_S)
    if leaks:
        _end_processes(leaks)
        pytest.fail(f"left behind after {LEAK_DEADLINE_S} s:\n{leaks}", pytrace=False)


def _end_processes(leaks: Leaks) -> None:
    """What is left must not disturb the next test, nor keep pytest from ending."""
    for leak in leaks.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(leak.pid).kill()
