"""`holdfast replay` of what cannot be replayed: what it says, and that it ends with 2. No torch is needed for that."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import main
from holdfast.records.writer import RunRecord
from unit.records import facts

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "replay.json").read_text())
HOSTILE = "<script>[red]\x1b[2J"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def record(home: Path) -> Callable[..., str]:
    """Make a record with these incidents; returns the id of the run."""

    def make(*incidents: dict[str, Any], **about: Any) -> str:
        record = RunRecord.open(facts(**about))
        for incident in incidents:
            record.note_incident(incident)
        record.close()
        assert record.id is not None
        return record.id

    return make


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["replay", *arguments], catch_exceptions=False)


def refusal(*arguments: str) -> str:
    """What is said, on stderr alone, by a command that ends with 2."""
    done = replay(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    return " ".join(done.stderr.split())


BAD = {"cause": "segmentation fault", "summary": "died of a segmentation fault", "done": "skipped", "sample_index": 17}


def test_there_is_no_run_yet(home: Path) -> None:
    """And what makes one."""
    assert "There is no run yet" in refusal()


def test_a_run_that_is_not_there(record: Callable[..., str]) -> None:
    """Those that are there are named."""
    known = record(BAD)
    assert f"There is no run 'zzzz'. The last ones: {known}" in refusal("zzzz.1")


def test_an_incident_that_is_not_there(record: Callable[..., str]) -> None:
    """Those that are there are named, with the command that lists them."""
    run_id = record(BAD, BAD)
    assert f"has no incident 7, but {run_id}.1 to {run_id}.2. 'holdfast replay {run_id}'" in refusal(f"{run_id}.7")
    assert f"Run {(clean := record())} has no incident" in refusal(f"{clean}.1")


@pytest.mark.parametrize("words", ["x.y", ".1", "1.", "a.-1"])
def test_what_is_no_incident(record: Callable[..., str], words: str) -> None:
    """The form is shown."""
    record(BAD)
    assert "7f3a.2 is the second of run 7f3a" in refusal(words)


def test_the_dataset_must_be_known(record: Callable[..., str]) -> None:
    """A run that was started without a word of its dataset needs --dataset."""
    assert "Name it: --dataset MODULE:OBJECT" in refusal(f"{record(BAD)}.1")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nothing", "not of the form MODULE:DATASET"),
        ("no_such_module:x", "There is no module 'no_such_module'"),
        ("missing.py:x", "There is no file missing.py"),
        ("data.py:absent", "data has no 'absent'"),
        ("data.py:number", "is no dataset, but an object of int"),
        ("data.py:broken", "raised: ZeroDivisionError"),
        ("wrong.py:x", "Importing wrong failed: RuntimeError: no"),
        ("data.v2.py:x", "no module has a dot in its name. Rename it."),
        ("json.py:number", "json/__init__.py has the same name, and is found first. Rename the file."),
        ("sys.py:path", "a module of Python's own has the same name, and is found first. Rename the file."),
    ],
)
def test_a_dataset_that_is_none(
    record: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    """Each with its remedy."""
    monkeypatch.delitem(sys.modules, "data", raising=False)
    (tmp_path / "data.py").write_text("number = 1\ndef broken():\n    1 / 0\n")
    (tmp_path / "wrong.py").write_text("raise RuntimeError('no')\n")
    for name in ("data.v2.py", "json.py", "sys.py"):
        (tmp_path / name).write_text("number = 1\n")
    assert words in refusal(f"{record(BAD)}.1", "--dataset", target)


def test_a_remembered_dataset_that_is_gone(record: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said where the name comes from."""
    monkeypatch.setenv("HOLDFAST_TARGET", "gone_module:x")
    said = refusal(f"{record(BAD)}.1")
    assert "gone_module:x is what the run was started with" in said


@pytest.mark.parametrize("front", ["ProcessPoolExecutor", "holdfast.map", "holdfast.spawn"])
def test_calls_cannot_be_replayed(record: Callable[..., str], front: str) -> None:
    """Their arguments are in no record."""
    said = refusal(f"{record(BAD, front=front)}.1", "--dataset", "a:b")
    assert f"is of {front}: it made calls, whose arguments are in no record" in said


def test_a_refusal_quotes_a_record_without_its_orders_to_the_terminal(record: Callable[..., str]) -> None:
    """Anybody may have written it: what is printed of it is text."""
    said = refusal(f"{record(BAD, front=HOSTILE)}.1", "--dataset", "a:b")
    assert "is of <script>[red] [2J: it made calls" in said


def test_a_record_of_a_newer_version(record: Callable[..., str], home: Path) -> None:
    """It may mean something else: nothing is guessed."""
    run_id = record(BAD)
    [path] = (home / "runs").iterdir()
    path.write_text(path.read_text().replace('"version":1', '"version":99', 1))
    assert "was recorded by a newer holdfast" in refusal(f"{run_id}.1")


def test_a_torn_record_is_read_as_far_as_it_goes(record: Callable[..., str], home: Path) -> None:
    """What is left is listed, and that something is missing is said."""
    run_id = record(BAD, BAD, BAD)
    [path] = (home / "runs").iterdir()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[2][:40], "\n", lines[3][:40]]))
    done = replay(run_id)
    assert done.exit_code == 0
    assert f"{run_id}.1" in done.stdout
    assert "damaged" in done.stdout
    assert "2 lines of its record are damaged" in refusal(f"{run_id}.3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pdb", "--gdb"), "exclude each other"),
        (("--gdb", "--memray"), "exclude each other"),
        (("--pdb", "--json"), "--json has no place beside a debugger"),
        (("--memory-limit", "much"), "--memory-limit='much' must be"),
        (("--sample-timeout", "0"), "is not a time"),
        (("--sample-timeout", "soon"), "is not a time"),
        (("--repeat", "0"), "--repeat"),
        (("--nonsense",), "No such option"),
    ],
)
def test_options_that_make_no_sense(record: Callable[..., str], arguments: tuple[str, ...], words: str) -> None:
    """Before anything is loaded."""
    assert words in refusal(f"{record(BAD)}.1", *arguments)


def test_a_disabled_loader_guards_nothing(record: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_DISABLE=1: a crash would end the command."""
    run_id = record(BAD)
    monkeypatch.setenv("HOLDFAST_DISABLE", "1")
    assert "HOLDFAST_DISABLE is set" in refusal(f"{run_id}.1")


def test_the_incidents_of_a_run_are_listed(record: Callable[..., str]) -> None:
    """With their ids, hostile text and all; the last run where none is named. As data they follow their schema."""
    run_id = record(BAD, {"cause": HOSTILE, "summary": HOSTILE, "sample_index": HOSTILE, "done": HOSTILE})
    for arguments in ((), (run_id,), (f"{run_id}.1", "--list")):
        done = replay(*arguments)
        assert done.exit_code == 0
        assert "died of a segmentation fault" in done.stdout
        assert "<script>[red]" in done.stdout
        assert "\x1b" not in done.stdout
        assert f"next  holdfast replay {run_id}.1" in done.stderr
    data = json.loads(replay(run_id, "--json").stdout)
    jsonschema.validate(data, SCHEMA)
    assert [each["id"] for each in data["incidents"]] == [f"{run_id}.1", f"{run_id}.2"]


def test_a_run_in_which_nothing_went_wrong(record: Callable[..., str]) -> None:
    """That is said."""
    done = replay(record())
    assert (done.exit_code, "Nothing went wrong" in done.stdout) == (0, True)
