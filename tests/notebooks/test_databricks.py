"""Programs of Databricks users, in a notebook: as they should run, and with one rank that raises, dies or hangs."""

from __future__ import annotations

import pytest

import databricks
from cells import Shown, run_cells

pytestmark = pytest.mark.long  # each starts a kernel

ALL = "results [(1, 1), (2, 4), (3, 9), (4, 16)]"
ALL_BUT_ONE = "results [(1, 1), (2, 4), (3, None), (4, 16)]"


def run(fault: str, method: str, timeout_s: float | None = None) -> dict[str, Shown]:
    _, *shown = run_cells(*databricks.cells(fault, method, timeout_s))
    found = dict(zip(databricks.PROGRAMS, shown, strict=True))
    assert all(one.left == [] for one in shown)
    assert all(one.error == "" for one in shown), shown
    return found


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_they_work(method: str) -> None:
    assert [ALL in shown.shown for shown in run("", method).values()] == [True, True, True]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_record_that_raises_is_handled_by_themselves_and_seen_in_the_cell(method: str) -> None:
    """They catch it, log it and go on; the log arrives, marked with its rank."""
    for shown in run("raises", method).values():
        assert ALL_BUT_ONE in shown.shown
        assert "Error in worker process: bad record" in shown.shown


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_that_dies_is_named_at_once(method: str) -> None:
    """Where a Pool hangs for ever, and a Queue waits for its timeout: which rank, which signal, and nothing is left."""
    for name, shown in run("dies", method).items():
        assert "caught rank " in shown.shown, name
        assert "SIGKILL" in shown.shown
        assert name == "two queues" or "caught rank 2 (pid" in shown.shown


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_that_hangs_is_ended_with_its_stack(method: str) -> None:
    """Past `timeout`; the message says in which line it was.

    All ranks have that long, and those that do not hang need it: for their way to the queues and the manager.
    """
    for name, shown in run("hangs", method, timeout_s=5.0).items():
        assert "caught rank " in shown.shown, name
        assert "process_data" in shown.shown, shown.shown
