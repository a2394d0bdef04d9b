"""A record as it is written: what is in it, what never is, who writes it, and how large it gets."""

from __future__ import annotations

import copy
import errno
import itertools
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import board_rows
from holdfast.errors import HoldfastWarning
from holdfast.records import home, reader
from holdfast.records.limits import Limits
from holdfast.records.writer import RunRecord
from unit.records import FACTS, Counted, facts

SECRET = "hunter2-do-not-write-me"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(home, "_has_warned", False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


def path_of(record: RunRecord) -> Path:
    assert record.path is not None
    return record.path


# --- what is in it ------------------------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    """Start, incidents with their ids, a reading, end."""
    record = RunRecord.open(FACTS)
    assert record.note_incident({"cause": "hung", "sample_index": (1, "a"), "time": 12.5}) == f"{record.id}.1"
    assert record.note_incident({"cause": "was killed by SIGSEGV"}) == f"{record.id}.2"
    record.tick(100.0, Counted())
    record.tick(105.0, Counted(batches=7, samples=448, waited_s=0.25, restarts=1, skipped=2), lambda: {3: os.getpid()})
    record.close({"outcome": "finished", "batches": 9})

    run = reader.read(path_of(record))
    assert run.id == record.id == run.start["id"]
    assert (run.start["num_workers"], run.start["dataset"], run.start["version"]) == (4, "ImageFolder", 1)
    assert [(one["number"], one["cause"]) for one in run.incidents] == [(1, "hung"), (2, "was killed by SIGSEGV")]
    assert (run.incidents[0]["sample_index"], run.incidents[0]["time"]) == ([1, "a"], 12.5)
    [reading] = run.readings
    assert (reading["at_s"], reading["batches"], reading["skipped"], reading["incidents"]) == (5.0, 7, 2, 2)
    assert reading["main"][0] > 1 << 20
    [[pid, *_, worker_id]] = reading["workers"]
    assert (pid, worker_id) == (os.getpid(), 3)
    assert reading["stages"] == {"fetch_s": 0.0, "collate_s": 0.0, "send_s": 0.0}
    assert run.end is not None
    assert (run.end["outcome"], run.end["incidents"], run.end["readings"]) == ("finished", 2, 1)
    assert (run.damaged_lines, run.unknown, run.is_alive, run.is_full, run.is_newer) == (0, (), False, False, False)


def test_workers_and_skipped_samples_are_lines_of_their_own() -> None:
    """With their times; an index that is an object is told by its type."""
    record = RunRecord.open(FACTS)
    record.note_worker({"event": "started", "worker_id": 1, "pid": 7, "why": "first", "time": 12.5})
    record.note_skipped({"epoch": 2, "index": Samples(), "reason": "bad", "replaced_by": 4})
    record.close()
    run = reader.read(path_of(record))
    assert run.workers == (
        {"kind": "worker", "time": 12.5, "event": "started", "worker_id": 1, "pid": 7, "why": "first"},
    )
    [skipped] = run.skipped
    assert skipped.pop("time") > 0
    assert skipped == {"kind": "skipped", "epoch": 2, "index": "<Samples>", "reason": "bad", "replaced_by": 4}
    assert run.unknown == ()


def test_workers_and_skipped_samples_past_their_bounds_are_counted() -> None:
    """In number, and in bytes; neither takes room from the other, nor from incidents."""
    record = RunRecord.open(FACTS, Limits(max_worker_lines=3, max_skipped_bytes=500))
    for n in range(20):
        record.note_worker({"event": "started", "worker_id": n, "pid": n, "why": "restart"})
        record.note_skipped({"epoch": 0, "index": n, "reason": "x" * 100, "replaced_by": None})
    assert record.note_incident({"cause": "hung"}) is not None
    record.close()
    run = reader.read(path_of(record))
    assert run.end is not None
    assert (len(run.workers), run.end["worker_lines_left_out"]) == (3, 17)
    assert 0 < len(run.skipped) < 5
    assert run.end["skipped_left_out"] == 20 - len(run.skipped)


def test_the_boards_of_a_run_are_known_by_what_its_first_line_says() -> None:
    """So that who reads the record can find them; a record that writes nothing has none."""
    record = RunRecord.open(FACTS)
    start = reader.read(path_of(record)).start
    assert record.token == board_rows.token_of(start["id"], start["time"]) > 0
    assert RunRecord.none().token == 0
    record.close()


def test_a_run_in_which_nothing_happens_is_two_lines() -> None:
    """However often it ticks, within the first second."""
    record = RunRecord.open(FACTS)
    for n in range(100):
        record.tick(1000.0 + n / 125, Counted(batches=n))
    record.close()
    assert [json.loads(line)["kind"] for line in path_of(record).read_text().splitlines()] == ["start", "end"]


def test_every_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept back, and a death comes before a line or after it."""
    written: list[bytes] = []
    write = os.write

    def noting(fd: int, data: bytes) -> int:
        written.append(data)
        return write(fd, data)

    monkeypatch.setattr(os, "write", noting)
    record = RunRecord.open(FACTS)
    record.note_incident({"cause": "hung", "evidence": "x" * 7000})
    assert path_of(record).read_bytes() == b"".join(written)
    record.close()
    assert path_of(record).read_bytes().splitlines(keepends=True) == written
    assert len(written) == 3


def test_a_record_that_somebody_emptied_has_no_hole() -> None:
    """Lines are appended to what there is."""
    record = RunRecord.open(FACTS)
    os.truncate(path_of(record), 0)
    record.note_incident({"cause": "hung"})
    record.close()
    run = reader.read(path_of(record))
    assert (len(run.incidents), run.damaged_lines) == (1, 0)


def test_the_fields_of_a_line_that_are_ours_are_not_overwritten() -> None:
    """An incident cannot make itself another kind of line."""
    record = RunRecord.open(FACTS)
    record.note_incident({"kind": "end", "number": 99, "cause": "hung"})
    record.close({"kind": "start", "incidents": 99})
    run = reader.read(path_of(record))
    assert [one["number"] for one in run.incidents] == [1]
    assert run.end is not None
    assert run.end["incidents"] == 1


def test_an_index_that_fails_at_being_looked_at_does_not_stop_training() -> None:
    """The incident is counted and noted, without what failed."""

    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise ZeroDivisionError

    record = RunRecord.open(FACTS)
    assert record.note_incident({"cause": "hung", "sample_index": Hostile(a=1)}) == f"{record.id}.1"
    record.close()
    [incident] = reader.read(path_of(record)).incidents
    assert incident["error"] == "ZeroDivisionError"


# --- what never is ------------------------------------------------------------------------------------------------

ALLOWED = {
    *("holdfast", "version", "kind", "id", "time"),
    *("holdfast_version", "torch_version", "python_version", "num_workers", "start_method", "batch_size"),
    "sample_timeout_s",
    *("dataset", "dataset_length", "rank", "world_size", "front", "function"),
    *("on_error", "memory_limit_bytes", "memory_budget_bytes"),
    *("platform", "cpus", "script", "target", "command", "launch", "host", "pid", "process_started", "booted"),
}


class Samples:
    """A dataset whose `repr` tells too much."""

    def __repr__(self) -> str:
        return SECRET


def test_the_first_line_has_these_fields_and_no_others() -> None:
    """A new one is a decision: it belongs in this list, and in docs/records.md."""
    record = RunRecord.open(FACTS)
    record.close()
    assert reader.read(path_of(record)).start.keys() == ALLOWED


def test_the_page_about_records_names_every_field() -> None:
    """What is in a file is for its owner to know."""
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
    assert [name for name in ALLOWED if f"`{name}`" not in page] == []


def test_no_argument_environment_variable_or_sample_is_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where an object is handed over in place of a fact, or as an index."""
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setattr(sys, "argv", [f"/home/{SECRET}/train.py", "--token", SECRET])
    record = RunRecord.open(facts(dataset=Samples(), dataset_length=[SECRET], batch_size={SECRET: 1}))
    record.note_incident({"cause": "hung", "sample_index": Samples(), "samples": [Samples(), SECRET.encode()]})
    record.tick(0.0, Counted())
    record.tick(5.0, Counted())
    record.close({"dataset": Samples()})
    text = path_of(record).read_text()
    assert SECRET not in text
    start = reader.read(path_of(record)).start
    assert (start["script"], start["dataset"], start["dataset_length"]) == ("train.py", "<Samples>", "<list>")
    values = {value for name, value in os.environ.items() if len(value) > 12 and name != "HOLDFAST_HOME"}
    assert [value for value in values if value in text] == []


# --- who writes it ------------------------------------------------------------------------------------------------


def test_a_forked_child_writes_nothing() -> None:
    """Whatever it calls; and what it closes is its own. Its parent goes on."""
    record = RunRecord.open(FACTS)
    record.tick(0.0, Counted())
    before = path_of(record).read_bytes()
    child = os.fork()
    if child == 0:
        try:
            noted = record.note_incident({"cause": "hung"})
            record.tick(100.0, Counted())
            record.close({})
            os._exit(0 if noted is None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path_of(record).read_bytes() == before
    assert reader.read(path_of(record)).is_alive
    assert record.note_incident({"cause": "hung"}) == f"{record.id}.1"
    record.close()


def test_a_forked_child_has_a_record_of_its_own() -> None:
    """If it opens one."""
    record = RunRecord.open(FACTS)
    child = os.fork()
    if child == 0:
        try:
            own = RunRecord.open(FACTS)
            own.close({"outcome": "child"})
            os._exit(0 if own.id not in (None, record.id) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    outcomes = {run.id: run.end and run.end["outcome"] for run in reader.all_runs()}
    assert outcomes.pop(record.id or "") is None
    assert list(outcomes.values()) == ["child"]
    record.close()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_writes_nothing(duplicate: Any) -> None:
    """Two objects must not have one descriptor."""
    record = RunRecord.open(FACTS)
    other = duplicate(record)
    assert other.note_incident({"cause": "hung"}) is None
    other.close({})
    assert record.note_incident({"cause": "hung"}) is not None
    record.close({})


def test_a_record_that_is_dropped_lets_its_file_go() -> None:
    """Without an end line: nobody said it ended."""
    record = RunRecord.open(FACTS)
    path = path_of(record)
    assert reader.read(path).is_alive
    del record
    run = reader.read(path)
    assert (run.is_alive, run.end) == (False, None)


def test_a_record_is_closed_once() -> None:
    """After it, nothing is written and nothing fails."""
    record = RunRecord.open(FACTS)
    record.close({"outcome": "first"})
    before = path_of(record).read_bytes()
    record.close({"outcome": "second"})
    record.tick(1e9, Counted())
    assert record.note_incident({"cause": "hung"}) is None
    assert path_of(record).read_bytes() == before


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE], ids=errno.errorcode.get)
def test_an_error_in_writing_ends_the_record_with_one_warning(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training does not notice more than that."""
    record = RunRecord.open(FACTS)

    def fail(fd: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.warns(HoldfastWarning, match=os.strerror(number)):
            noted = record.note_incident({"cause": "hung"})
        again = record.note_incident({"cause": "hung"})  # a second warning would be an error here
        record.tick(1e9, Counted())
        record.close({})
    assert (noted, again) == (None, None)
    run = reader.read(path_of(record))
    assert (run.incidents, run.end, run.is_alive) == ((), None, False)


def test_a_descriptor_that_is_another_file_by_now_is_not_written_to(tmp_path: Path) -> None:
    """As after a daemon closed all descriptors and opened its own."""
    record = RunRecord.open(FACTS)
    assert record._file is not None
    fd = record._file._fd
    assert fd is not None
    with (tmp_path / "theirs").open("wb") as theirs:
        os.dup2(theirs.fileno(), fd)
        with pytest.warns(HoldfastWarning, match="closed by other code"):
            record.note_incident({"cause": "hung"})
        os.fstat(fd)  # nor closed
        os.close(fd)
    assert (tmp_path / "theirs").read_bytes() == b""


# --- how large it gets --------------------------------------------------------------------------------------------


def test_incidents_past_the_bound_are_counted() -> None:
    """By their causes, in the end line; and the file says that it was full even without one."""
    record = RunRecord.open(FACTS, Limits(max_incidents=3))
    noted = [record.note_incident({"cause": f"{'ab'[n % 2]}: {n}"}) is not None for n in range(10)]
    assert noted == [True] * 3 + [False] * 7
    assert reader.read(path_of(record)).is_full
    record.close()
    run = reader.read(path_of(record))
    assert len(run.incidents) == 3
    assert run.end is not None
    assert (run.end["incidents"], run.end["incidents_left_out"]) == (10, {"a": 3, "b": 4})


def test_causes_without_end_do_not_make_the_end_line_long() -> None:
    """Past a hundred of them they are others."""
    record = RunRecord.open(FACTS, Limits(max_incidents=0))
    for n in range(1000):
        record.note_incident({"cause": f"cause {n}"})
    record.close()
    run = reader.read(path_of(record))
    assert run.end is not None
    assert len(run.end["incidents_left_out"]) == 101
    assert run.end["incidents_left_out"]["others"] == 900


def test_a_file_does_not_grow_past_its_bound() -> None:
    """With long incidents and readings without end; the last line still comes."""
    limits = Limits(max_file_bytes=200_000, max_reading_bytes=30_000)
    record = RunRecord.open(FACTS, limits)
    for n in range(3000):
        record.note_incident({"cause": "hung", "evidence": "x" * (n * 7 % 50_000)})
        record.tick(n * 1e6, Counted(batches=n))
    record.close({"text": "x" * 100_000})
    run = reader.read(path_of(record))
    assert path_of(record).stat().st_size <= 200_000
    assert run.damaged_lines == 0
    assert run.is_full
    assert sum(len(json.dumps(one, separators=(",", ":"))) + 1 for one in run.readings) <= 30_000
    assert run.end is not None
    assert run.end["incidents"] == 3000
    assert sum(run.end["incidents_left_out"].values()) == 3000 - len(run.incidents)
    assert run.end["readings"] + run.end["readings_left_out"] == 2999
    assert run.end["readings"] == len(run.readings) > 0


def test_readings_of_a_month_are_few_and_reach_its_end() -> None:
    """The interval doubles and doubles; they do not stop."""
    record = RunRecord.open(FACTS, Limits(readings_per_interval=10))
    month_s = 30 * 24 * 3600
    for now_s in range(0, month_s, 60):
        record.tick(float(now_s), Counted(batches=now_s))
    record.close()
    readings = reader.read(path_of(record)).readings
    assert 50 < len(readings) < 200
    gaps = [b["at_s"] - a["at_s"] for a, b in itertools.pairwise(readings)]
    assert gaps == sorted(gaps)
    assert readings[-1]["at_s"] > month_s / 2


def test_readings_past_their_number_are_counted() -> None:
    """The hard bound, for a pace that does not hold."""
    record = RunRecord.open(FACTS, Limits(max_readings=4))
    for n in range(11):
        record.tick(n * 1e6, Counted())
    record.close()
    run = reader.read(path_of(record))
    assert run.end is not None
    assert (len(run.readings), run.end["readings"], run.end["readings_left_out"]) == (4, 4, 6)
