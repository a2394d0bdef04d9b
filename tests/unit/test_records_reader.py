"""A record as it is read: whatever is left of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.records import home, liveness, reader
from holdfast.records.writer import RunRecord
from unit.records import FACTS, Counted


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def path() -> Path:
    """A whole record: start, incident, reading, incident, end."""
    record = RunRecord.open(FACTS)
    record.note_incident({"cause": "hung", "evidence": "é\n😀"})
    record.tick(0.0, Counted())
    record.tick(5.0, Counted())
    record.note_incident({"cause": "was killed by SIGSEGV"})
    record.close({"outcome": "finished"})
    assert record.path is not None
    return record.path


def test_a_record_that_is_torn_at_any_byte_is_read_up_to_there(path: Path) -> None:
    """Every whole line counts, also one that lacks only its end; the rest is one damaged line, or none."""
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        run = reader.read(path)
        complete = sum(end - 1 <= size for end in ends)
        begins_another = size not in (0, *ends) and size + 1 not in ends
        found = len(run.incidents) + len(run.readings) + bool(run.start) + (run.end is not None)
        assert (found, run.damaged_lines) == (complete, int(begins_another)), size
        assert run.id == home.run_id_of(path.name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.lists(st.binary(max_size=40), max_size=4))
def test_garbage_between_the_lines_is_passed_over(path: Path, garbage: list[bytes]) -> None:
    """Bytes of any kind: what is whole is still read, and each line that is not is counted."""
    first, *rest = path.read_bytes().splitlines()
    mixed = path.with_name("mixed.jsonl")
    mixed.write_bytes(b"\n".join([first, *garbage, *rest]) + b"\n")
    run = reader.read(mixed)
    assert (len(run.incidents), len(run.readings), run.end is not None) == (2, 1, True)
    assert run.damaged_lines == len([line for line in b"\n".join(garbage).split(b"\n") if line])


def test_a_file_of_anything_is_read_without_an_error(path: Path) -> None:
    """Its id is its name's."""
    for data in (b"", b"\n\n", b"\x00" * 5000, b"[" * 200_000, b'{"kind":"end"}', os.urandom(5000)):
        path.write_bytes(data)
        run = reader.read(path)
        assert (run.id, run.start, run.incidents) == (home.run_id_of(path.name), {}, ())
        assert not run.is_alive


def test_fields_and_kinds_that_are_new_are_kept(path: Path) -> None:
    """A record of a later version is read as far as this one can, and says so."""
    start, incident, *rest = map(json.loads, path.read_text().splitlines())
    song = {"kind": "song", "words": 1}
    new = [{**start, "version": 2, "colour": "red"}, {**incident, "colour": "blue"}, song, *rest]
    path.write_text("\n".join(map(json.dumps, new)) + "\n")
    run = reader.read(path)
    assert run.is_newer
    assert (run.start["colour"], run.incidents[0]["colour"]) == ("red", "blue")
    assert run.unknown == (song,)
    assert (len(run.incidents), run.damaged_lines) == (2, 0)


def test_a_record_that_was_renamed_has_the_id_of_its_first_line(path: Path) -> None:
    """As one that somebody sent."""
    run_id = home.run_id_of(path.name)
    copy = path.with_name("from-a-friend.jsonl")
    copy.write_bytes(path.read_bytes())
    assert reader.read(copy).id == run_id
    copy.write_bytes(b"")
    assert reader.read(copy).id == "from-a-friend"


def test_runs_are_listed_newest_first() -> None:
    """All that can be read; nothing else that lies there."""
    assert list(reader.all_runs()) == []
    records = [RunRecord.open(FACTS) for _ in range(3)]
    runs = home.runs_directory()
    assert runs is not None
    (runs / "notes.txt").write_text("mine")
    (runs / home.file_name("dddd", 2e9)).mkdir()
    os.mkfifo(runs / home.file_name("eeee", 2e9))
    (runs / home.file_name("ffff", 2e9)).symlink_to("nowhere")
    found = list(reader.all_runs())
    assert {run.id for run in found} == {record.id for record in records}
    assert [run.path.name for run in found] == sorted((run.path.name for run in found), reverse=True)
    for record in records:
        record.close()


def test_a_run_is_found_by_the_beginning_of_its_id(place: Path) -> None:
    """All that begin so; a whole id means that one, though a longer one begins with it."""
    (place / "runs").mkdir()
    for n, run_id in enumerate(["7f3a", "7f3a9c", "7f00", "1234"]):
        (place / "runs" / home.file_name(run_id, 1.7e9 + n)).write_bytes(b"")
    assert [run.id for run in reader.find("7f")] == ["7f00", "7f3a9c", "7f3a"]
    assert [run.id for run in reader.find(" 7F3A ")] == ["7f3a"]
    assert [run.id for run in reader.find("7f3a9")] == ["7f3a9c"]
    assert reader.find("9") == []
    assert reader.find("../x") == []


def test_where_there_are_no_locks_the_process_is_looked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By host, pid and start; whichever differs, it is another process."""
    monkeypatch.setattr(liveness, "is_held", lambda _: None)
    start, *rest = path.read_text().splitlines()

    def is_alive(**changes: object) -> bool:
        path.write_text("\n".join([json.dumps({**json.loads(start), **changes}), *rest[:-1]]) + "\n")
        return reader.read(path).is_alive

    assert is_alive()
    assert not is_alive(host="another")
    assert not is_alive(process_started=json.loads(start)["process_started"] - 100)
    assert not is_alive(process_started=None)
    assert not is_alive(pid=2**40)
    assert not is_alive(pid=-1)
