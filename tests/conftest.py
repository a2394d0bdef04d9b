"""For every test: nothing may be left behind.

After each test, once its garbage is collected: no process, descriptor, name in /dev/shm or thread more than before,
looked at again and again until a deadline; then the test fails with the stacks of what is left.
A test that failed on its own is not checked: its traceback keeps its objects alive.

Where torch is not installed (`make pythons`), what needs it is not collected.

Runs in: the test process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from multiprocessing import resource_sharer
from pathlib import Path

import psutil
import pytest

from holdfast.testing import Leaks, leaks_since, snapshot

LEAK_DEADLINE_S = 15.0
PROCESSES = {"diagnosis", "faults", "graph", "launch", "lifetime", "parity", "pool", "sharing"}
"""Folders of tests that start processes, some tenths of a second each."""
TABLE = "test_table.py"
"""Of faults: every pair of values is a row of it, and of `make test`."""
MANY_ROWS = 3
_failed = pytest.StashKey[bool]()
_began_s = time.monotonic()

NEED_TORCH = [
    "cli/test_doctor_dataset.py",
    "cli/test_run_training.py",
    "diagnosis/test_memory_reproducers.py",
    "diagnosis/test_reproducers.py",
    "faults",
    "gpu",
    "graph",
    "launch",
    "lifetime",
    "metrics/test_metrics_of_runs.py",
    "metrics/test_on_incident.py",
    "notebooks",
    "parity",
    "pool",
    "report/test_report_every_cause.py",
    "report/test_report_of_real_runs.py",
    "sharing",
    "unit/test_arguments.py",
    "unit/test_backends.py",
    "unit/test_bad_samples.py",
    "unit/test_collate.py",
    "unit/test_crowding.py",
    "unit/test_cuda_streams.py",
    "unit/test_fetch.py",
    "unit/test_launching.py",
    "unit/test_layout.py",
    "unit/test_layout_roundtrip.py",
    "unit/test_names.py",
    "unit/test_rng.py",
    "unit/test_schedule.py",
    "unit/test_sharing_tensors.py",
    "unit/test_slots_random.py",
    "unit/test_streams.py",
    "unit/test_streams_resumed.py",
    "unit/test_substitutes.py",
    "unit/test_tune_sampling.py",
    "unit/test_worker_loop.py",
    "unit/test_writer.py",
]
"""A list, and not whatever fails to import: a test that should run without torch and does not is an error."""

collect_ignore = [] if importlib.util.find_spec("torch") else NEED_TORCH  # pytest reads this name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-faults", action="store_true", help="every row of the fault table, not every pair of values")
    parser.addoption(
        "--within",
        type=float,
        metavar="MINUTES",
        help="skip, and say so, what has not begun by then; the order of the files changes from day to day",
    )


def pytest_configure() -> None:
    """A shell lets what it runs in the background ignore SIGINT, and everything started from there ignores it too. Many
    tests interrupt themselves or what they start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What `make test` leaves to `make more`: new interpreters, and two of three rows of a test that has many."""
    if config.getoption("--within") is not None:
        files = sorted({item.path for item in items})
        random.Random(date.today().toordinal()).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))
    rows: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if not _long_methods(item).isdisjoint(value for value in values if isinstance(value, str)):
            item.add_marker(pytest.mark.long)
        elif _folder(item) in PROCESSES and item.path.name != TABLE and not item.get_closest_marker("long"):
            rows[item.nodeid.partition("[")[0]].append(item)
    for of_one_test in rows.values():
        if len(of_one_test) >= MANY_ROWS:
            for number, item in enumerate(of_one_test):
                if number % 3:
                    item.add_marker(pytest.mark.long)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _long_methods(item: pytest.Item) -> set[str]:
    """Under these a test starts new interpreters, each for seconds. Parity and the table of faults, which has every
    pair of values anyway, are spared; of what else there is only fork is run at once.
    """
    is_spared = _folder(item) == "parity" or item.path.name == TABLE
    return set() if is_spared else {"spawn", "forkserver", "portable"}


def pytest_report_header() -> list[str]:
    return [f"not collected, for want of torch: {', '.join(collect_ignore)}"] if collect_ignore else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--within")
    if minutes is not None and time.monotonic() - _began_s > 60 * minutes:
        pytest.skip(f"not begun within {minutes:g} minutes: `make more` runs it")


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


@pytest.fixture(scope="session", autouse=True)
def records_lie_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The records of the user who runs the tests are not touched: neither by us nor by any child program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_HOME", str(tmp_path_factory.mktemp("holdfast-home")))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = snapshot()
    yield
    if request.node.stash.get(_failed, False):
        return
    gc.collect()
    leaks = leaks_since(before, LEAK_DEADLINE_S)
    gc.freeze()  # what is alive now is pytest's: thousands of reports would be looked at after each test
    if leaks:
        _end_processes(leaks)
        pytest.fail(f"left behind after {LEAK_DEADLINE_S} s:\n{leaks}", pytrace=False)


def _end_processes(leaks: Leaks) -> None:
    """What is left must not disturb the next test, nor keep pytest from ending."""
    for leak in leaks.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(leak.pid).kill()


@pytest.fixture
def stops_count_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped by a signal is lost after a second, and not after ten."""
    monkeypatch.setattr("holdfast.workers.watching.STOPPED_GRACE_S", 1.0)


@pytest.fixture
def sharer_stopped() -> Iterator[None]:
    """multiprocessing's thread that hands over descriptors outside of a start: it would be left behind."""
    yield
    resource_sharer.stop()
