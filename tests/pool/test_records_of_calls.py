"""The record that a pool, a map and a group of ranks keep of their runs."""

from __future__ import annotations

import functools
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

import calls
import holdfast
from calls import METHODS
from helpers import Program
from holdfast import Incident
from holdfast.records import reader
from holdfast.records.reader import Run

pytestmark = pytest.mark.timeout(120)
FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def the_run() -> Run:
    (run,) = reader.all_runs()
    assert run.damaged_lines == 0
    return run


def ended(run: Run) -> tuple[int, int, int]:
    """Calls that came back, those of them that failed, and restarts."""
    assert run.end is not None
    return run.end["samples"], run.end["skipped"], run.end["restarts"]


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_records_its_incidents(method: str) -> None:
    """What was made, how many calls came back, what killed a worker; an error knows where it is written."""
    with calls.ours(method)(2) as pool:
        good = [pool.submit(calls.square, number) for number in range(5)]
        bad = pool.submit(calls.die, "os._exit").exception()
        assert [future.result() for future in good] == [0, 1, 4, 9, 16]
    assert isinstance(bad, holdfast.WorkerCrashed)
    assert bad.incident is not None
    run = the_run()
    facts = {"front": "ProcessPoolExecutor", "function": "square", "num_workers": 2, "start_method": method}
    assert run.start.items() >= {**facts, "dataset": None, "batch_size": None, "pid": os.getpid()}.items()
    assert [incident["cause"] for incident in run.incidents] == ["exit by user code"]
    assert bad.incident.id == f"{run.id}.1"
    assert Incident.from_json(run.incidents[0]) == bad.incident
    assert ended(run) == (6, 1, 1)


def test_a_map_records_what_every_item_failed_of() -> None:
    """Exceptions too, with their tracebacks."""
    fail = functools.partial(calls.fail_at, 3)
    results = list(holdfast.map(fail, range(8), num_workers=2, on_error="return", mp_context=FORK))
    run = the_run()
    assert isinstance(results[3], holdfast.FailedItem)
    assert results[3].incident is not None
    assert results[3].incident.id == f"{run.id}.1"
    assert (run.start["front"], run.start["function"]) == ("holdfast.map", "partial")
    assert [incident["cause"] for incident in run.incidents] == ["exception"]
    assert "ValueError: not 3" in run.incidents[0]["evidence"]
    assert ended(run) == (8, 1, 0)


@pytest.mark.parametrize(("on_error", "done"), [("return", "returned"), ("skip", "skipped")])
def test_an_incident_of_a_map_says_what_became_of_its_item(on_error: str, done: str) -> None:
    """Whether its call raised or cost a worker: neither reached the caller as an exception."""
    for fail in (functools.partial(calls.fail_at, 3), functools.partial(calls.die_at, 3, "os._exit")):
        list(holdfast.map(fail, range(5), num_workers=1, on_error=on_error, mp_context=FORK))
    found = {incident["cause"]: incident["done"] for run in reader.all_runs() for incident in run.incidents}
    assert found == {"exception": done, "exit by user code": done}


@pytest.mark.parametrize(("on_error", "done"), [("return", "returned"), ("skip", "skipped")])
def test_what_cannot_be_handed_over_is_recorded_too(on_error: str, done: str) -> None:
    """An item that cannot be sent, a result that cannot be taken in: with "skip" nobody else would ever know."""
    items = [1, calls.make_lock(), CannotBeLoaded("item"), 4]
    results = list(holdfast.map(give_back, items, num_workers=1, on_error=on_error, mp_context=FORK))
    run = the_run()
    assert [incident["done"] for incident in run.incidents] == [done, done]
    sent, received = run.incidents
    assert "NotPicklable: argument 0 cannot be sent" in sent["summary"]
    assert sent["phase"].startswith("sending give_back(<unlocked _thread")
    assert received["summary"] == "raised LookupError: not here"
    assert received["phase"].startswith("receiving what came of give_back(")
    assert ended(run) == (4, 2, 0)
    failed = [result for result in results if isinstance(result, holdfast.FailedItem)]
    assert [one.index for one in failed] == ([1, 2] if on_error == "return" else [])
    assert [one.incident and one.incident.id for one in failed] == [f"{run.id}.{k}" for k in (1, 2)[: len(failed)]]


class CannotBeLoaded:
    """Where it was made."""

    def __init__(self, name: str) -> None:
        self.made_in = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["made_in"] == os.getpid():
            raise LookupError("not here")
        self.__dict__.update(state)


def give_back(item: Any) -> Any:
    return item


@pytest.mark.parametrize(
    ("initializer", "summary"),
    [(calls.die_in_initializer, "exited with status 4"), (calls.initialize_badly, "raised OSError: no such device")],
)
def test_a_pool_that_is_broken_says_why(initializer: Any, summary: str) -> None:
    """An initializer that dies, and one that raises."""
    with holdfast.ProcessPoolExecutor(2, FORK, initializer) as pool:
        error = pool.submit(calls.square, 1).exception()
    assert isinstance(error, holdfast.WorkerInitError)
    run = the_run()
    assert [(incident["summary"], incident["done"]) for incident in run.incidents] == [(summary, "raised")]
    assert error.incident is not None
    assert error.incident.id == f"{run.id}.1"
    assert run.end is not None


def test_nothing_is_recorded_where_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an argument, or for all."""
    with holdfast.ProcessPoolExecutor(1, FORK, record=False) as pool:
        pool.submit(calls.square, 1).result()
    list(holdfast.map(calls.square, [1], num_workers=1, mp_context=FORK, record=False))
    holdfast.spawn(calls.pid_of_worker, nprocs=1, start_method="fork", record=False)
    with monkeypatch.context() as patch:
        patch.setenv("HOLDFAST_HOME", os.devnull)
        with holdfast.ProcessPoolExecutor(1, FORK) as pool:
            pool.submit(calls.square, 1).result()
    assert list(reader.all_runs()) == []


def test_a_pool_that_is_not_used_has_no_record() -> None:
    with holdfast.ProcessPoolExecutor(1, FORK):
        pass
    assert list(reader.all_runs()) == []


def test_a_pool_inside_a_worker_has_no_record_of_its_own() -> None:
    """There may be one for each call."""
    with holdfast.ProcessPoolExecutor(1, FORK) as pool:
        assert pool.submit(calls.nested, 3).result() == [0, 1, 4]
    assert the_run().start["function"] == "nested"


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_group_of_ranks_records_what_failed(start: str) -> None:
    """The rank, the cause, and that the group was started again; one record for all its lives."""
    with pytest.raises(holdfast.WorkerCrashed) as caught:
        holdfast.spawn(_die_at_1, nprocs=2, start_method=start, max_restarts=1)
    run = the_run()
    facts = {"front": "holdfast.spawn", "function": "_die_at_1", "num_workers": 2, "start_method": start}
    assert run.start.items() >= facts.items()
    assert [(told["worker_id"], told["cause"]) for told in run.incidents] == [(1, "exit by user code")] * 2
    assert caught.value.incident is not None
    assert caught.value.incident.id == f"{run.id}.2"
    assert ended(run) == (4, 2, 1)


def _die_at_1(rank: int) -> None:
    if rank == 1:
        os._exit(3)


def test_a_group_that_finishes_has_a_record_that_says_so() -> None:
    holdfast.spawn(calls.pid_of_worker, nprocs=2, start_method="fork")
    assert (ended(the_run()), the_run().incidents) == ((2, 0, 0), ())


def test_a_record_survives_the_kill_of_everything() -> None:
    """Its first line is there; that the last one is missing says how it ended."""
    with Program("stay_in_pool.py", "fork", "asleep", "pool") as program:
        program.wait_for_lines("stuck", count=2)
        alive = the_run()
        program.process.kill()
        program.wait_until_nothing_is_left(5.0)
        program.wait()
    assert (alive.is_alive, alive.end) == (True, None)
    assert (the_run().is_alive, the_run().end) == (False, None)


def test_a_reading_has_the_memory_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how many calls have come back so far."""
    from holdfast.records.limits import Limits
    from holdfast.workers.run import RunRecord

    begin: Any = RunRecord.open
    monkeypatch.setattr(RunRecord, "open", lambda facts: begin(facts, Limits(interval_s=1e-6)))
    with holdfast.ProcessPoolExecutor(1, FORK) as pool:
        pids = {pool.submit(calls.pid_of_worker).result() for _ in range(5)}
    readings = the_run().readings
    assert {pid for reading in readings for pid, *_ in reading["workers"]} == pids
    assert max(reading["samples"] for reading in readings) > 0
