"""`holdfast report`, as a user runs it. Needs no torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "report"))
from holdfast.cli.main import main
from holdfast.records.writer import RunRecord
from made_records import HOSTILE, end, full_run, incident, skipped, start, write
from unit.records import FACTS, next_line, writer_process

jsonschema = pytest.importorskip("jsonschema")

LIMIT_S = 60.0
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def holdfast_report(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m holdfast report` with these arguments, to its end; its output is piped."""
    command = [sys.executable, "-m", "holdfast", "report", *arguments]
    environment = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)


def data_of(*arguments: str, schema: str = "report", status: int = 1) -> dict[str, Any]:
    """What --json says, valid by its schema, with nothing on stderr."""
    done = CliRunner().invoke(main, ["report", *arguments, "--json"])
    assert (done.exit_code, done.stderr) == (status, "")
    data: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.json").read_text()))
    return data


# -- what it prints ----------------------------------------------------------------------------------------------------


def test_the_last_run_becomes_a_page_and_its_path_is_printed(home: Path) -> None:
    """On stdout, alone; what happened, and the next command, on stderr. Status 1: there were incidents."""
    write(home, full_run())
    done = holdfast_report()
    assert done.returncode == 1
    assert done.stdout == f"{home}/reports/7f3a.html\n"
    first, last = done.stderr.splitlines()
    assert first == "The run came through 3 incidents; 2 samples were left out"
    assert last == "next  holdfast replay 7f3a.2 --dataset data:photos   load that one sample alone"
    assert Path(done.stdout.strip()).read_text().startswith("<!doctype html>")


def test_a_healthy_run_ends_with_0(home: Path) -> None:
    write(home, [start(), end()])
    done = holdfast_report("7f")
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "All went well")
    assert data_of(status=0)["healthy"]


@pytest.mark.parametrize("columns", ["80", "40"])
def test_text_fits_into_80_columns(columns: str, home: Path) -> None:
    """Piped it has no colour, and is as wide as a page of text whatever the variable says."""
    write(home, full_run())
    done = holdfast_report("--text", COLUMNS=columns)
    assert done.returncode == 1
    assert done.stdout.startswith("The run came through 3 incidents; 2 samples were left out\n")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout + done.stderr


def test_json_says_all_that_the_page_does(home: Path) -> None:
    write(home, full_run())
    data = data_of("7f3a")
    assert json.loads(holdfast_report("--json").stdout) == data
    assert (data["run"], data["outcome"], data["healthy"]) == ("7f3a", "finished", False)
    assert [group["count"] for group in data["incidents"]["groups"]] == [2, 1]
    assert data["incidents"]["groups"][0]["members"][1]["id"] == "7f3a.2"
    assert data["skipped"]["total"] == 2
    assert data["time"]["stages"] == {"fetch_s": 82.5, "collate_s": 13.75, "send_s": 6.875}
    assert data["memory"]["workers"][0]["limit_bytes"] > data["memory"]["workers"][0]["peak_bytes"]


def test_the_id_of_an_incident_means_its_run(home: Path) -> None:
    """It is what an error's last line names."""
    write(home, full_run())
    assert data_of("7f3a.2")["run"] == "7f3a"


def test_the_list_has_every_run_newest_first(home: Path) -> None:
    write(home, [start(), incident(), end(incidents=1, skipped=1)], "7f3a")
    later = write(home, [start(front="holdfast.map", dataset=None, function="square")], "b00b")
    later.rename(later.with_name("20990101T000000.000Z-b00b.jsonl"))
    done = holdfast_report("--list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "b00b", "7f3a"]
    assert "holdfast.map(square)" in lines[1]
    assert re.search(r"DataLoader\(Photos\)\s+finished\s+1\s+1", lines[2])
    assert max(map(len, lines)) <= 100
    data = data_of("--list", schema="report-list", status=0)
    assert [run["outcome"] for run in data["runs"]] == ["cut short", "finished"]


def test_output_goes_where_it_is_wanted(home: Path, tmp_path: Path) -> None:
    """A page, a text or data into a file, and a page to stdout."""
    write(home, full_run())
    wanted = tmp_path / "out"
    for form, begins in (("--text", "The run came"), ("--json", "{"), ("", "<!doctype html>")):
        done = CliRunner().invoke(main, ["report", "-o", str(wanted), *([form] if form else [])])
        assert (done.exit_code, done.stdout) == (1, f"{wanted}\n")
        assert wanted.read_text().startswith(begins)
    assert holdfast_report("-o", "-").stdout.startswith("<!doctype html>")
    assert not (home / "reports").exists()


def test_a_record_that_was_handed_on_is_read_by_its_path(home: Path, tmp_path: Path) -> None:
    """It need not lie among this user's."""
    path = write(tmp_path / "theirs", full_run())
    assert data_of(str(path))["run"] == "7f3a"
    assert not home.exists()


def test_the_next_command_for_a_record_that_was_handed_on_finds_it_again(home: Path, tmp_path: Path) -> None:
    """Its id is not known here."""
    path = write(tmp_path / "theirs", [start(), end()])
    done = CliRunner().invoke(main, ["report", str(path), "--text"])
    assert f"holdfast report {path} --open" in " ".join(done.stderr.split())


def test_what_was_handed_on_is_replayed_where_the_run_was(home: Path, tmp_path: Path) -> None:
    """Here its id is not known: it is said so, and no replay is the next command."""
    path = write(tmp_path / "theirs", full_run())
    write(home, full_run())
    theirs, ours = (CliRunner().invoke(main, ["report", named, "--text"]) for named in (str(path), "7f3a"))
    assert "loads this one sample alone, where the run was" in " ".join(theirs.stdout.split())
    assert "next holdfast replay" not in " ".join(theirs.stderr.split())
    assert "where the run was" not in ours.stdout
    assert "next holdfast replay 7f3a.2" in " ".join(ours.stderr.split())


@pytest.mark.parametrize(("browser", "words"), [("true", ""), ("false", "No browser was found")])
def test_open_shows_the_page_in_a_browser(browser: str, words: str, home: Path, tmp_path: Path) -> None:
    """Which is told the page's address; where there is none, that is said."""
    write(home, [start(), end()])
    note = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {note}\n{browser}\n')
    script.chmod(0o700)
    done = holdfast_report("--open", BROWSER=f"{script} %s", DISPLAY="", PATH="")
    assert done.returncode == 0
    assert words in done.stderr
    assert note.read_text() == f"file://{home}/reports/7f3a.html\n"


def test_it_works_where_torch_does_not(home: Path) -> None:
    """Torch itself may be what crashes."""
    write(home, full_run())
    program = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; from holdfast.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, "report", "--text"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "process           4711")


def test_where_stdout_knows_no_unicode_it_is_spelt_out(home: Path) -> None:
    write(home, [start(), incident(summary="raised ValueError: naïve", at_s=0.00002), end()])
    done = holdfast_report("--text", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert r"na\xefve" in done.stdout


# -- records as they are found -----------------------------------------------------------------------------------------


def test_no_run_yet(home: Path) -> None:
    done = holdfast_report()
    assert (done.returncode, done.stdout) == (2, "")
    assert "There is no run yet." in done.stderr
    assert "holdfast demo" in done.stderr
    listed = holdfast_report("--list")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "There is no run yet." in listed.stderr
    assert data_of("--list", schema="report-list", status=0) == {"runs": []}


def test_a_torn_record_is_told_as_far_as_it_goes(home: Path) -> None:
    write(home, [start(), incident()], torn=b'{"kind":"reading","time":17')
    data = data_of()
    assert data["outcome"] == "cut short"
    assert data["warnings"] == ["1 line of the record could not be read, and went unheeded."]
    assert data["incidents"]["total"] == 1


def test_an_empty_record_and_one_of_garbage(home: Path) -> None:
    path = write(home, [])
    assert data_of()["outcome"] == "unreadable"
    path.write_bytes(os.urandom(2000))
    assert data_of()["outcome"] == "unreadable"


def test_a_record_of_a_newer_version_is_told_with_a_warning(home: Path) -> None:
    write(home, [start(version=7), {"kind": "novelty", "time": 1}, end()])
    assert "newer version of holdfast" in data_of()["warnings"][0]
    assert "! This record was written by a newer version" in holdfast_report("--text").stdout


def test_hostile_text_is_harmless_in_every_form(home: Path) -> None:
    """Neither HTML, nor what a terminal obeys, nor rich's own markup, nor a path."""
    lines = [start(dataset=HOSTILE, script=HOSTILE, front=HOSTILE), incident(summary=HOSTILE, cause=HOSTILE), end()]
    write(home, [*lines, skipped(HOSTILE, reason=HOSTILE)])
    outputs = [holdfast_report(), holdfast_report("--text"), holdfast_report("--list")]
    for done in outputs:
        assert re.findall("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", done.stdout + done.stderr) == []
    assert "[bold]rich[/bold]" in outputs[1].stdout
    assert "<script" not in Path(outputs[0].stdout.strip()).read_text()
    data_of()


def test_a_command_to_paste_runs_nothing_else(home: Path) -> None:
    """What it is made of may be anybody's."""
    write(home, [start(target="data:x; rm -rf ~"), incident(), end()])
    done = holdfast_report("--text")
    assert "holdfast replay 7f3a.1 --dataset 'data:x; rm -rf ~'" in " ".join(done.stdout.split())
    assert "--dataset 'data:x; rm -rf ~' " in done.stderr


def test_a_run_that_goes_on_is_told_so_far(home: Path) -> None:
    """And is no problem of its own; then its process is killed, and the record was cut short."""
    with writer_process(home, "stay") as process:
        run_id = next_line(process).split()[1]
        data = data_of(run_id)
        assert data["title"].endswith("2 incidents so far")
        process.kill()
        process.wait(LIMIT_S)
        assert data_of(run_id)["outcome"] == "cut short"


def test_an_empty_run_is_healthy(home: Path) -> None:
    """As of num_workers=0, where torch's own iterator loads and nothing is counted."""
    RunRecord.open(FACTS).close()
    data = data_of(status=0)
    assert data["title"] == "The run ended, and nothing was counted"


# -- wrong usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("beef",), "There is no run 'beef'. The last ones: 7f3b, 7f3a."),
        (("7f",), "is the beginning of 2 runs: 7f3b, 7f3a. Name more of it."),
        (("missing/record.jsonl",), "missing/record.jsonl cannot be read: No such file"),
        (("--text", "--json"), "give one of them"),
        (("--open", "--text"), "leave out --text"),
        (("--open", "-o", "-"), "leave out"),
        (("--list", "7f3a"), "give it alone"),
        (("7f3a", "7f3b"), "unexpected extra argument"),
        (("--html",), "No such option"),
        (("7f3a", "-o", "no/such/folder/x.html"), "cannot be written to no/such/folder/x.html: No such file"),
        (("7f3a", "--text", "-o", "no/such/folder/x"), "-o no/such/folder/x cannot be written"),
        (("7f3a", "-o", "."), "cannot be written to ."),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_the_remedy(arguments: tuple[str, ...], remedy: str, home: Path) -> None:
    for run_id in ("7f3a", "7f3b"):
        write(home, [start(), end()], run_id)
    done = CliRunner().invoke(main, ["report", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert remedy in " ".join(done.stderr.split())


# -- on a terminal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("form", ["--text", "--list", ""])
def test_nothing_is_wider_than_the_terminal(form: str, columns: int, home: Path) -> None:
    """But for the path and the next command, which are there to be copied. On a terminal there is colour."""
    pexpect = pytest.importorskip("pexpect")
    write(home, full_run())
    command = ["-m", "holdfast", "report", *([form] if form else [])]
    plain_environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "CI")}
    environment = plain_environment | {"TERM": "xterm-256color"}
    child = pexpect.spawn(
        sys.executable, command, dimensions=(50, columns), timeout=LIMIT_S, encoding="utf-8", env=environment
    )
    said = child.read()
    child.wait()  # by itself: `close` waits for a tenth of a second, and then ends it
    child.close()
    assert child.exitstatus == (0 if form == "--list" else 1)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert [line for line in plain if len(line) > columns and not line.startswith(("next ", "/"))] == []
    assert "\x1b[" in said
    assert "7f3a" in said


def test_where_reports_cannot_lie_another_place_is_asked_for(home: Path) -> None:
    """A file is in the way, or no records are kept at all."""
    path = write(home, [start(), end()])
    (home / "reports").write_text("in the way")
    for variables in ({}, {"HOLDFAST_HOME": os.devnull}):
        done = holdfast_report(str(path), **variables)
        assert done.returncode == 2
        assert "Name another file: -o FILE." in " ".join(done.stderr.split())
