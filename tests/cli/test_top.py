"""`holdfast top`, as a user sees it: in a real terminal, beside a real loader."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from terminal import HOLDFAST, PROMPT, terminal
from unit.records import next_line, writer_process
from waits import PATIENCE_S

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "top.json").read_text())
WATCHED = Path(__file__).parents[1] / "programs" / "watched_epoch.py"
HANGS = 41


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@dataclass(frozen=True)
class Watched:
    """A loader in a program of its own, with a worker that hangs."""

    process: subprocess.Popen[str]
    run_id: str


@contextlib.contextmanager
def watched(home: Path, name: str = "train.py") -> Iterator[Watched]:
    pytest.importorskip("torch")
    command = [sys.executable, str(WATCHED), name]
    environment = {**os.environ, "HOLDFAST_HOME": str(home)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            said, run_id = next_line(process).split()
            assert said == "ready"
            yield Watched(process, run_id)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def watched_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watched")


@pytest.fixture(scope="module")
def one_for_all(watched_home: Path) -> Iterator[Watched]:
    """Looking does nothing to it: the tests that only look can share one."""
    with watched(watched_home) as program:
        yield program


@pytest.fixture
def program(one_for_all: Watched, watched_home: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setenv("HOLDFAST_HOME", str(watched_home))
    return one_for_all


def top(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*HOLDFAST, "top", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)


def as_json(*arguments: str) -> list[dict[str, Any]]:
    """The runs, once the whole is as the schema says."""
    done = top("--once", "--json", "--interval", "0.5", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    runs: list[dict[str, Any]] = data["runs"]
    return runs


def test_a_script_is_told_what_every_worker_does(program: Watched) -> None:
    """As JSON: which sample hangs, in which worker, for how long, and under what limit; that training waits for it."""
    (run,) = as_json()
    assert (run["id"], run["script"], run["dataset"]) == (program.run_id, "train.py", "Watched")
    assert (run["state"], run["is_fresh"], run["pid"]) == ("running", True, program.process.pid)
    assert (run["batches"], run["samples"], run["skipped"]) == (10, 39, 1)
    assert (run["waiting"]["bottleneck"], run["waiting"]["share"] > 0.9) == ("loader", True)
    idle, stuck = sorted(run["workers"], key=lambda worker: worker["sample"] == HANGS)
    assert (stuck["doing"], stuck["sample"], stuck["batch"]) == ("loading", HANGS, HANGS // 4)
    assert stuck["since_s"] > 0
    assert stuck["limit_bytes"] > 2_000_000_000 > stuck["memory_bytes"] > 0
    assert (idle["doing"], idle["sample"]) == ("waiting for work", None)
    (incident,) = run["last_incidents"]
    assert (incident["id"], incident["sample"], incident["done"]) == (f"{program.run_id}.1", 5, "skipped")


def test_a_terminal_shows_it_and_is_given_back(program: Watched) -> None:
    """The picture on 80 columns and, after a resize, on 40; then q: the shell is as it was, and says what is next."""
    with terminal(80, 24) as shell:
        shell.run(*HOLDFAST, "top", program.run_id[:3], "--interval", "0.2")
        wide = shell.shows(lambda text: f"loading sample {HANGS}" in text and "100% of the last" in text)
        assert f"{program.run_id}  train.py  Watched  pid {program.process.pid}" in wide
        assert "worker  doing" in wide
        assert " GB" in wide or " GiB" in wide
        assert f"{program.run_id}.1  worker 1, sample 5 skipped: raised ValueError: [bold]no" in wide
        shell.resize(40, 12)
        narrow = shell.shows(f"loading {HANGS}")
        assert all(len(row) <= 40 for row in narrow.splitlines())
        assert "no batch came" in narrow
        shell.resize(80, 24)
        shell.shows(f"loading sample {HANGS}")
        shell.type("q")
        after = shell.shows(f"{PROMPT} 0")
        assert "loading" not in after
        assert f"holdfast report {program.run_id}" in after
        shell.run("stty", "-a")
        assert " -icanon" not in shell.shows("icanon")


@pytest.mark.long
def test_only_what_changes_is_written(program: Watched) -> None:
    """The screen is cleared once, when it is taken over; a row that stays the same is not sent again."""
    pexpect = pytest.importorskip("pexpect")
    child = pexpect.spawn(HOLDFAST[0], [*HOLDFAST[1:], "top", "--interval", "0.1"], dimensions=(24, 80))
    written = b""
    try:
        child.expect(rb"sample 5 skipped", timeout=PATIENCE_S)
        for _ in range(4):  # seconds, of the clock in the first row: more refreshes than that
            child.expect(rb"1 run  \d\d:\d\d:\d\d", timeout=PATIENCE_S)
            written += child.before + child.after
        child.send("q")
        child.expect(pexpect.EOF, timeout=PATIENCE_S)
        child.wait()  # by itself: `close` waits for a tenth of a second, and then ends it
    finally:
        child.close(force=True)
    assert (child.exitstatus, child.signalstatus) == (0, None)
    assert b"\x1b[2J" not in written
    assert f"loading sample {HANGS}".encode() in written  # for how long: that changes
    assert b"sample 5 skipped" not in written
    assert b"\x1b[?1049l" in child.before
    assert b"\x1b[?25h" in child.before


@pytest.mark.parametrize("how", ["C-c", "C-z", "kill"])
def test_however_it_ends_the_terminal_is_as_it_was(program: Watched, how: str) -> None:
    """Ctrl-C is an end like q; Ctrl-Z gives the terminal back until `fg`; SIGTERM does not leave it in disorder."""
    with terminal() as shell:
        shell.run(*HOLDFAST, "top", "--interval", "0.2")
        shell.shows(f"loading sample {HANGS}")
        if how == "kill":
            (top_pid,) = shell.children()
            os.kill(top_pid, signal.SIGTERM)
        else:
            shell.type(how)
        if how == "C-z":
            assert "loading" not in shell.shows(f"{PROMPT} 1")
            shell.type("fg; echo back: $?", "Enter")
            shell.shows(f"loading sample {HANGS}")
            shell.type("q")
        after = shell.shows({"C-c": f"{PROMPT} 0", "C-z": "back: 0", "kill": f"{PROMPT} 143"}[how])
        assert "loading" not in after
        shell.run("stty", "-a")
        assert " -icanon" not in shell.shows("icanon")


def test_what_is_piped_has_no_colour_and_ends(program: Watched) -> None:
    """Without --once too: a pipe is nobody who could press a key."""
    done = top("--interval", "0.2")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert f"loading sample {HANGS}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_a_pipe_that_is_to_have_colour_is_no_terminal(program: Watched) -> None:
    """FORCE_COLOR, as where tests are run for others to read: one picture, of the width of a pipe, and it ends."""
    done = top("--interval", "0.2", FORCE_COLOR="1", NO_COLOR="")
    assert done.returncode == 0
    assert "\x1b[1;36m" in done.stdout
    assert "\x1b[?1049h" not in done.stdout
    assert "q quits" not in done.stdout
    assert f"loading sample {HANGS}" in done.stdout


def test_a_run_that_dies_while_it_is_watched_is_told_as_dead(home: Path) -> None:
    """And the view goes on: the next run appears in it."""
    with terminal() as shell, watched(home) as program:
        shell.run(*HOLDFAST, "top", "--interval", "0.2")
        shell.shows(f"loading sample {HANGS}")
        program.process.kill()
        died = shell.shows("its process died")
        assert f"holdfast report {program.run_id}" in died
        assert "no loader runs now" in died
        with writer_process(home, "stay") as process:
            shell.shows(next_line(process).split()[1])
        shell.type("q")
        shell.shows(f"{PROMPT} 0")


def test_no_run_is_no_error() -> None:
    """It says so, and how to get one; as JSON there is an empty list."""
    done = top("--once")
    assert (done.returncode, done.stdout) == (0, "No loader runs on this machine now.\n")
    assert "holdfast demo" in done.stderr
    assert as_json() == []


def test_a_terminal_waits_for_a_run_to_begin() -> None:
    """Instead of ending: whoever starts it first is not to be too early. Ctrl-C ends it."""
    with terminal() as shell:
        shell.run(*HOLDFAST, "top", "--interval", "0.1")
        shell.shows("no loader runs now")
        with writer_process(Path(os.environ["HOLDFAST_HOME"]), "stay") as process:
            run_id = next_line(process).split()[1]
            shell.shows(run_id)
        shell.shows("ended after")
        shell.type("C-c")
        shell.shows(f"{PROMPT} 0")


def test_a_run_that_is_over_can_be_named(home: Path) -> None:
    """What its record says, and where there is more."""
    with writer_process(home, "stay") as process:
        run_id = next_line(process).split()[1]
    done = top("--once", run_id)
    assert done.returncode == 0
    assert "ended after" in done.stdout
    assert f"holdfast report {run_id}" in done.stdout
    assert as_json(run_id)[0]["state"] == "ended"


def test_a_dumb_terminal_gets_one_picture() -> None:
    """One that understands no sequences, as an editor's: nothing is taken over."""
    pexpect = pytest.importorskip("pexpect")
    with_dumb = os.environ | {"TERM": "dumb"}
    child = pexpect.spawn(HOLDFAST[0], [*HOLDFAST[1:], "top"], env=with_dumb, timeout=PATIENCE_S)
    said, status = child.read(), child.wait()
    child.close()
    assert status == 0
    assert b"\x1b" not in said
    assert b"No loader runs on this machine now." in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zzzz",), "There is no run 'zzzz'."),
        (("--interval", "0"), "'--interval'"),
        (("--interval", "soon"), "'--interval'"),
        (("--twice",), "--twice"),
        (("a", "b"), "b"),
    ],
)
def test_wrong_usage_of_top_ends_with_2(arguments: tuple[str, ...], said: str) -> None:
    """And names what was wrong."""
    done = top(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_records_full_of_hostile_text_are_shown_as_text(home: Path) -> None:
    """Torn lines, a newer version, control characters, HTML and markup in every field: nothing gets out."""
    runs = home / "runs"
    runs.mkdir(parents=True, mode=0o700)
    evil = "\x1b[2J\x1b]0;owned\x07[red]<script>\u202e\x9b1m"
    start = {"kind": "start", "version": 99, "time": evil, "script": evil, "dataset": [evil], "front": evil, "pid": -1}
    incident = {"kind": "incident", "number": evil, "summary": evil, "done": evil, "sample_index": {evil: evil}}
    lines = [json.dumps(start), json.dumps(incident), '{"kind":"rea', "\x00\xff"]
    (runs / "20260131T120501.123Z-beef.jsonl").write_text("\n".join(lines))
    done = top("--once", "beef")
    assert done.returncode == 0
    assert "[red]<script>" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()
    assert as_json("beef")[0]["state"] == "died"
    in_ascii = top("--once", "beef", PYTHONIOENCODING="ascii")
    assert (in_ascii.returncode, in_ascii.stdout.isascii()) == (0, True)


def test_the_name_of_the_last_script_is_text_and_no_markup(home: Path) -> None:
    """Where nothing runs it is named: `[/b]` is a tag that was never opened."""
    runs = home / "runs"
    runs.mkdir(parents=True, mode=0o700)
    record = runs / "20270115T080000.000Z-7f3a.jsonl"
    record.write_text(json.dumps({"kind": "start", "id": "7f3a", "time": 1.8e9, "script": "a[/b].py"}) + "\n")
    done = top("--once")
    assert (done.returncode, done.stdout.split("now. ")[1]) == (0, "The last one was 7f3a (a[/b].py).\n")
