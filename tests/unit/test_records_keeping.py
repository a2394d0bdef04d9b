"""Which records are kept, what they are called, and that the living are left alone. With real processes."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from holdfast.records import home, keeping, liveness, reader
from holdfast.records.limits import LIMITS, Limits
from holdfast.records.writer import RunRecord
from unit.records import FACTS, next_line, writer_process
from waits import PATIENCE_S, is_running, wait_until


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


def one_run(limits: Limits = LIMITS) -> str:
    record = RunRecord.open(FACTS, limits)
    record.close()
    assert record.id is not None
    return record.id


def ids() -> list[str]:
    return [run.id for run in reader.all_runs()]


# --- the death of a writer ----------------------------------------------------------------------------------------


def test_a_writer_that_is_killed_leaves_a_record_that_can_be_read(place: Path) -> None:
    """All that was noted, no end, and nobody takes it for alive."""
    with writer_process(place, "stay") as process:
        run_id = next_line(process).split()[1]
        [run] = reader.find(run_id)
        assert run.is_alive
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        [run] = reader.find(run_id)
    assert [one["cause"] for one in run.incidents] == ["was killed by SIGSEGV", "hung"]
    assert run.readings[0]["batches"] == 1
    assert (run.end, run.is_alive, run.damaged_lines) == (None, False, 0)


def test_a_forked_child_that_lives_on_is_not_taken_for_the_run(place: Path) -> None:
    """The lock is its parent's alone."""
    with writer_process(place, "fork") as process:
        _, run_id, child = next_line(process).split()
        assert reader.find(run_id)[0].is_alive
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        wait_until(lambda: not reader.find(run_id)[0].is_alive, PATIENCE_S, "the end of the run")
        assert is_running(int(child))
    wait_until(lambda: not is_running(int(child)), PATIENCE_S, "the end of the child")


# --- old ones make room -------------------------------------------------------------------------------------------


def test_no_more_than_so_many_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go when a new one starts."""
    clock = itertools.count(1.7e9)
    monkeypatch.setattr("time.time", lambda: next(clock))
    made = [one_run(Limits(max_runs=3)) for _ in range(6)]
    assert ids() == made[:2:-1]


def test_no_more_than_so_many_bytes_are_kept(place: Path) -> None:
    """With room for the new one as long as it can get."""
    for n in range(5):
        run_id = one_run()
        file = reader.find(run_id)[0].path
        file = file.rename(file.with_name(home.file_name(run_id, 1.7e9 + n)))
        with file.open("ab") as more:
            more.write(b"\n" * 100_000)
    newest = one_run(Limits(max_file_bytes=200_000, max_total_bytes=450_000))
    assert len(ids()) == 3
    assert ids()[0] == newest
    assert sum(file.path.stat().st_size for file in home.run_files(place / "runs")) < 450_000


def test_what_is_not_a_record_is_never_removed(place: Path) -> None:
    """By its name, or because it is a link or a directory."""
    one_run()
    runs = place / "runs"
    (runs / "notes.jsonl").write_text("mine")
    (runs / home.file_name("dddd", 1e9)).mkdir()
    (runs / home.file_name("ffff", 1e9)).symlink_to(place / "mine")
    (place / "mine").write_text("mine")
    one_run(Limits(max_runs=1))
    left = {path.name for path in runs.iterdir()}
    assert {"notes.jsonl", home.file_name("dddd", 1e9), home.file_name("ffff", 1e9)} < left
    assert (place / "mine").read_text() == "mine"


def test_a_run_that_is_alive_is_never_removed(place: Path) -> None:
    """It is the oldest, in a process of its own, and there is no room at all. When it is over, it goes."""
    with writer_process(place, "stay") as process:
        run_id = next_line(process).split()[1]
        for _ in range(3):
            one_run(Limits(max_runs=1, max_total_bytes=0))
            assert run_id in ids()
    [run] = reader.find(run_id)
    assert run.end is not None
    assert len(run.incidents) == 2
    one_run(Limits(max_runs=1))
    assert run_id not in ids()


def test_two_runs_of_one_process_leave_each_other_alone() -> None:
    """A lock belongs to an open file and not to a process."""
    first = RunRecord.open(FACTS)
    one_run(Limits(max_runs=1))
    assert first.id in ids()
    assert first.note_incident({"cause": "hung"}) is not None
    first.close()


@pytest.mark.parametrize("why", ["no locks", "another host", "damaged"])
def test_where_it_is_not_sure_a_record_goes_after_a_day(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks; a machine whose locks are not seen here; a first line that does not say."""
    run_id = one_run()
    path = reader.find(run_id)[0].path
    if why == "no locks":
        monkeypatch.setattr(liveness, "is_held", lambda _: None)
    elif why == "another host":
        path.write_bytes(path.read_bytes().replace(f'"host":"{os.uname().nodename}"'.encode(), b'"host":"another"'))
    else:
        path.write_bytes(path.read_bytes()[1:])
    one_run(Limits(max_runs=1))
    assert path.exists()
    a_while_ago = time.time() - 25 * 3600
    os.utime(path, (a_while_ago, a_while_ago))
    one_run(Limits(max_runs=1))
    assert not path.exists()


# --- ids ----------------------------------------------------------------------------------------------------------


def test_two_runs_at_the_same_instant_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same time, same draw, and neither has seen the other: the second gets more digits."""
    monkeypatch.setattr("time.time", lambda: 1.7e9)
    monkeypatch.setattr("secrets.token_hex", lambda _: "7f3a9c00" * 4)
    monkeypatch.setattr(home, "run_files", lambda _: [])
    records = [RunRecord.open(FACTS) for _ in range(3)]
    assert [record.id for record in records] == ["7f3a", "7f3a9c", "7f3a9c00"]
    assert len({record.path for record in records}) == 3
    for record in records:
        record.close()


def test_an_id_that_an_older_run_has_is_not_given_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its file has another name, by its time."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "7f3a9c00" * 4)
    (place / "runs").mkdir(mode=0o700)
    (place / "runs" / home.file_name("7f3a", 1.7e9)).write_bytes(b"")
    assert one_run() == "7f3a9c"


def test_when_every_id_is_taken_there_is_an_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no endless search. It cannot happen with random ids."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "7" * 32)
    (place / "runs").mkdir(mode=0o700)
    for digits in (4, 6, 8, 16, 32):
        (place / "runs" / home.file_name("7" * digits, 1.7e9)).write_bytes(b"")
    with pytest.raises(FileExistsError):
        keeping.create(place / "runs", 1.7e9)


def test_the_time_in_a_name_is_utc_to_the_millisecond() -> None:
    """So that names sort by it."""
    assert home.file_name("7f3a", 1738325101.1239) == "20250131T120501.123Z-7f3a.jsonl"
