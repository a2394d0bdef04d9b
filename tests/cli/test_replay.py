"""`holdfast replay`, as a user runs it: real crashes, hangs and exceptions of a recorded run, again.

One program leaves the records; every test loads one of its samples anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import jsonschema
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.records import reader
from holdfast.records.facts import RunFacts
from holdfast.records.reader import Run
from holdfast.records.writer import RunRecord
from waits import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "replay.json").read_text())
LIMIT_S = 120.0


@dataclass(frozen=True)
class Recorded:
    """The runs of the program, by the class of their dataset."""

    home: Path
    runs: dict[str, Run]

    def incident(self, dataset: str, index: Any, nth: int = 0) -> str:
        """The id of the incident of that sample."""
        run = self.runs[dataset]
        found = [entry["number"] for entry in run.incidents if entry["sample_index"] == index]
        return f"{run.id}.{found[nth]}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    home = tmp_path_factory.mktemp("replayed-home")
    subprocess.run(
        [sys.executable, PROGRAMS / "replayed.py"],
        env=_environment(home),
        stdout=subprocess.DEVNULL,
        timeout=LIMIT_S,
        check=True,
    )
    runs = [reader.read(path) for path in sorted((home / "runs").iterdir())]
    return Recorded(home, {run.start["dataset"]: run for run in runs})


def _environment(home: Path, **variables: str) -> dict[str, str]:
    path = os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"HOLDFAST_HOME": str(home), "PYTHONPATH": path} | variables


Replay = Callable[..., Any]


@pytest.fixture
def replay(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """The command in this process, which has torch already: what workers leave behind is looked for as well."""
    monkeypatch.setenv("HOLDFAST_HOME", str(recorded.home))
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["replay", *arguments], catch_exceptions=False)


@pytest.fixture
def command(recorded: Recorded, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command as a process, to its end, in a directory of its own."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", "replay", *arguments],
            env=_environment(recorded.home, **variables),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run


Command = Callable[..., subprocess.CompletedProcess[str]]


def data_of(done: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    return data


def missing(said: str, *words: str) -> list[str]:
    return [each for each in words if each not in said]


# --- it fails again ---------------------------------------------------------------------------------------------------


def test_a_sample_that_raises_is_told_with_its_traceback(recorded: Recorded, command: Command) -> None:
    """The dataset is remembered, its exception is shown where it was raised, and what it says is no markup."""
    done = command(recorded.incident("Photos", 3))
    assert done.returncode == 1
    words = ("sample 3 raised ValueError", "[bold]JPEG[/bold]", "the same cause as then", "replayed.py:", "in fail")
    assert missing(done.stdout, *words) == []
    assert missing(done.stderr, "then ", "sample 3 of replayed:Photos", "sample_timeout 0.5 s", "--pdb") == []
    assert "\x1b" not in done.stdout + done.stderr


def test_a_sample_that_crashes_is_diagnosed_anew(recorded: Recorded, command: Command) -> None:
    """The command lives, and says what the loader would say; as data it follows its schema, whatever is printed."""
    done = command(recorded.incident("Photos", 7), "--json")
    assert done.returncode == 1
    data = data_of(done)
    failure = data["failure"]
    assert (data["outcome"], failure["type"], failure["cause"]) == ("failed", "WorkerCrashed", "segmentation fault")
    assert failure["is_same_cause"]
    assert "null pointer" in failure["because"]
    assert "loading 7" in done.stderr  # which the dataset printed


def test_a_sample_hangs_under_the_timeout_of_its_run(recorded: Recorded, replay: Replay) -> None:
    """The limit is in the record: it need not be told again."""
    data = data_of(replay(recorded.incident("Photos", 11), "--json"))
    assert data["limits"]["sample_timeout_s"] == 0.5
    assert data["failure"]["cause"] == "hang"
    assert "sample_timeout=0.5" in data["failure"]["because"]


def test_a_sample_takes_more_memory_than_its_run_allowed(recorded: Recorded, replay: Replay) -> None:
    """The same for memory; without the limit the sample loads."""
    incident = recorded.incident("Photos", 13)
    data = data_of(replay(incident, "--json"))
    assert data["limits"] == {"memory_limit_bytes": 300_000_000, "sample_timeout_s": 0.5, "are_known": True}
    assert data["failure"]["cause"] == "over memory_limit"
    lifted = replay(incident, "--memory-limit", "none", "--sample-timeout", "none")
    assert lifted.exit_code == 0
    assert "no memory_limit, no sample_timeout" in lifted.stderr


@pytest.mark.long
def test_a_crash_is_told_at_length(recorded: Recorded, replay: Replay) -> None:
    """Cause, place, evidence and remedy, without the frames of the worker itself."""
    done = replay(recorded.incident("Photos", 7))
    words = ("died of a segmentation fault while loading sample 7", "where ", "evidence ", "SIGSEGV", "try ")
    assert missing(done.stdout, *words) == []
    assert "popen_fork.py" not in done.stdout
    assert "--gdb" in done.stderr


# --- it loads ---------------------------------------------------------------------------------------------------------


def test_a_sample_that_loads_now_is_described(recorded: Recorded, replay: Replay) -> None:
    """Its structure, shapes, types and sizes, and nothing of what is in it."""
    done = replay(recorded.incident("Photos", 7), "--dataset", f"{PROGRAMS / 'replayed.py'}:Mended", "--json")
    assert done.exit_code == 0
    data = data_of(done)
    assert (data["outcome"], data["failure"]) == ("loaded", None)
    [loaded] = data["loaded"]
    parts = {part["path"]: part for part in loaded["parts"]}
    assert parts["['image']"] == {
        **{"path": "['image']", "type": "Tensor", "dtype": "float32", "shape": [3, 8, 8]},
        **{"bytes": 768, "length": None},
    }
    assert parts["['boxes'][1][1]"]["bytes"] == 4
    assert "a name" not in done.stdout


def test_another_dataset_than_the_runs_is_noted(recorded: Recorded, replay: Replay) -> None:
    """Told in words: it may not be the same sample."""
    done = replay(recorded.incident("Photos", 3), "--dataset", "replayed:Mended", "--repeat", "3")
    assert done.exit_code == 0
    assert "the run's dataset was Photos of 16; this is Mended of 16" in done.stderr
    assert missing(done.stdout, "sample 3 loaded, 3 times", "['image']", "Tensor float32 3x8x8, 768 bytes") == []


@pytest.mark.long
def test_a_sample_is_tried_with_other_random_numbers(recorded: Recorded, replay: Replay) -> None:
    """Each time with the next seed, until one fails; the same seed gives the same again."""
    command = [recorded.incident("Photos", 3), "--dataset", "replayed:Sometimes", "--repeat", "50", "--json"]
    first, again = data_of(replay(*command)), data_of(replay(*command))
    assert first["outcome"] == "failed"
    assert len(first["loaded"]) == len(again["loaded"]) < 50


def test_indices_may_be_texts_and_tuples(recorded: Recorded, replay: Replay) -> None:
    """As the record has them; one of the user's own choice is read as Python writes it."""
    text = data_of(replay(recorded.incident("ByName", "b [x]"), "--json"))
    assert (text["sample"], text["outcome"]) == ("sample 'b [x]'", "failed")
    pair = data_of(replay(recorded.incident("ByName", ["c", 2]), "--json"))
    assert (pair["sample"], pair["outcome"]) == ("sample ('c', 2)", "failed")
    other = replay(recorded.incident("ByName", ["c", 2]), "--index", "('c', 3)")
    assert other.exit_code == 0


# --- what cannot be loaded again --------------------------------------------------------------------------------------


def test_a_sample_beyond_the_dataset(recorded: Recorded, replay: Replay) -> None:
    """It is another dataset than the run's: that is wrong usage, and no failure of a sample."""
    done = replay(recorded.incident("Photos", 7), "--dataset", "replayed:Few")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Sample 7 is beyond this dataset, which has 2 samples. The run's had 16." in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("incident", "words"),
    [
        (
            {"cause": "dataset exception", "phase": "collating"},
            "is of no single sample: dataset exception while collating",
        ),
        ({"cause": "hang", "sample_index": "<Key>"}, "was <Key>: objects and very long texts are in no record"),
    ],
)
def test_an_incident_without_a_sample_that_could_be_asked_for(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, incident: dict[str, Any], words: str
) -> None:
    """It is said why, and a sample of the user's choice can be loaded instead."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    record = RunRecord.open(RunFacts("0", "0", 2, "fork", 4, "Mended", 16))
    record.note_incident(incident)
    record.close()
    done = replay(f"{record.id}.1", "--dataset", "replayed:Mended")
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())
    assert replay(f"{record.id}.1", "--dataset", "replayed:Mended", "--index", "5").exit_code == 0


# --- iterable datasets ------------------------------------------------------------------------------------------------


def test_an_element_of_an_iterable_is_found_in_its_workers_part(recorded: Recorded, replay: Replay) -> None:
    """By as many workers as the run had, of which one loads: the earlier elements are passed over."""
    data = data_of(replay(recorded.incident("Stream", [1, 4]), "--json"))
    assert data["sample"] == "element 4 of worker 1's part"
    assert (data["failure"]["type"], data["failure"]["is_same_cause"]) == ("ValueError", True)


@pytest.mark.long
def test_of_a_death_in_an_iterable_the_batch_is_loaded_again(recorded: Recorded, replay: Replay) -> None:
    """Which element it was is in no record, and that is said; where none fails, all of them are described."""
    incident = f"{recorded.runs['CrashingStream'].id}.1"
    done = replay(incident)
    assert done.exit_code == 1
    assert "elements 4 to 7 of worker 1's part" in done.stderr
    assert "which of them it was is not recorded" in done.stderr
    assert "died of a segmentation fault while loading element 4" in done.stdout
    mended = data_of(replay(incident, "--dataset", "replayed:MendedStream", "--json"))
    assert (mended["outcome"], len(mended["loaded"])) == ("loaded", 4)


@pytest.mark.long
def test_a_debugger_does_not_pretend_to_be_one_of_two_workers(recorded: Recorded, replay: Replay) -> None:
    """In one process the iterable would not be split: another element would be shown."""
    done = replay(recorded.incident("Stream", [1, 4]), "--pdb")
    assert done.exit_code == 2
    assert "2 workers had split this dataset among them" in done.stderr


# --- a closer look ----------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(recorded: Recorded, tmp_path: Path) -> Callable[..., Any]:
    """The command in a terminal of so many columns."""
    pexpect = pytest.importorskip("pexpect")

    def start(*arguments: str, columns: int = 80) -> Any:
        environment = _environment(recorded.home, TERM="xterm-256color", COLUMNS="", PYTHON_COLORS="0")
        del environment["COLUMNS"]
        return pexpect.spawn(
            sys.executable,
            ["-m", "holdfast", "replay", *arguments],
            env=environment,
            cwd=str(tmp_path),
            dimensions=(50, columns),
            timeout=PATIENCE_S,
            encoding="utf-8",
        )

    return start


def ended(child: Any) -> tuple[str, int]:
    """What it says until its end, and its exit status."""
    import pexpect

    child.expect(pexpect.EOF)
    said = child.before
    child.wait()  # by itself: `close` waits for a tenth of a second, and then ends it
    child.close()
    return said, child.exitstatus


@pytest.mark.long
def test_pdb_begins_where_the_sample_raises(recorded: Recorded, terminal: Callable[..., Any]) -> None:
    """In a real terminal: the frame of the user's own function, with its variables."""
    child = terminal(recorded.incident("Photos", 3), "--pdb")
    child.expect_exact("(Pdb) ")
    assert "raise ValueError" in child.before
    child.sendline("p how, 'seen'")
    child.expect_exact("('raises', 'seen')")
    child.sendline("up")
    child.expect_exact("__getitem__()")
    child.sendline("q")
    said, status = ended(child)
    assert status == 1
    assert "sample 3 did not load: ValueError" in said


@pytest.mark.long
@pytest.mark.parametrize(("index", "line"), [(11, "time.sleep(3600)"), (13, "torch.ones(HUGE)")])
def test_pdb_begins_where_a_limit_is_passed(
    recorded: Recorded, terminal: Callable[..., Any], index: int, line: str
) -> None:
    """A hang is stopped by an alarm, and memory is refused: in this process as in a worker."""
    child = terminal(recorded.incident("Photos", index), "--pdb")
    child.expect_exact("(Pdb) ")
    assert f"-> {line}" in " ".join(child.before.split())
    child.sendline("q")
    assert ended(child)[1] == 1


@pytest.mark.long
def test_pdb_can_begin_before_the_sample(recorded: Recorded, terminal: Callable[..., Any]) -> None:
    """For a crash, at which pdb cannot stop."""
    child = terminal(recorded.incident("Photos", 7), "--pdb-before")
    child.expect_exact("(Pdb) ")
    assert 'print("loading", index)' in child.before
    child.sendline("q")
    said, status = ended(child)
    assert (status, "left in the debugger" in said) == (1, True)


@pytest.mark.long  # gdb reads the symbols of all of torch's libraries
def test_gdb_shows_both_stacks_of_a_crash(recorded: Recorded, command: Command) -> None:
    """Where nobody can type it runs by itself: the native frames, then Python's."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    done = command(recorded.incident("Photos", 7), "--gdb")
    assert done.returncode == 1
    assert missing(done.stdout + done.stderr, "SIGSEGV", "#0 ", "string_at", "in fail", "did not load") == []


@pytest.mark.long
def test_gdb_shows_where_a_sample_hangs_and_that_another_loads(recorded: Recorded, command: Command) -> None:
    """The alarm of sample_timeout is a signal like any other to gdb."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    hung = command(recorded.incident("Photos", 11), "--gdb")
    assert hung.returncode == 1
    assert missing(hung.stdout + hung.stderr, "SIGALRM", "#0 ", "in fail") == []
    fine = command(recorded.incident("Photos", 11), "--gdb", "--dataset", "replayed:Mended")
    assert fine.returncode == 0
    assert "Tensor float32 3x8x8" in fine.stdout


@pytest.mark.long
def test_an_exception_under_gdb_is_told_as_one(recorded: Recorded, command: Command) -> None:
    """There is no signal to stop at: the traceback is shown."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    raised = command(recorded.incident("Photos", 3), "--gdb")
    assert (raised.returncode, "did not load: ValueError" in raised.stdout) == (1, True)


def test_without_gdb_the_remedy_is_told(
    recorded: Recorded, replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path without it: nothing is run."""
    monkeypatch.setenv("PATH", str(tmp_path))
    done = replay(recorded.incident("Photos", 7), "--gdb")
    assert done.exit_code == 2
    assert "apt-get install gdb" in done.stderr


def test_memray_notes_who_allocates(recorded: Recorded, replay: Replay, tmp_path: Path) -> None:
    """The file is there, its peak is told, and memray can draw it."""
    memray = pytest.importorskip("memray")
    no_limits = ("--memory-limit", "none", "--sample-timeout", "none")
    done = replay(recorded.incident("Photos", 13), "--memray", "--json", *no_limits)
    assert done.exit_code == 0
    memory = data_of(done)["memray"]
    assert memory["peak_bytes"] >= 4 * 200_000_000
    assert Path(memory["file"]).parent == tmp_path
    with memray.FileReader(memory["file"]) as file:
        largest = max(file.get_high_watermark_allocation_records(), key=lambda record: record.size)
        assert "fail" in {function for function, *_ in largest.stack_trace()}


@pytest.mark.long
def test_memray_notes_what_came_before_a_crash(recorded: Recorded, replay: Replay) -> None:
    """The file has no end, and can be read all the same."""
    pytest.importorskip("memray")
    done = replay(recorded.incident("Photos", 7), "--memray")
    assert done.exit_code == 1
    assert missing(done.stdout, "allocated at the peak", "memray flamegraph ") == []


# --- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_is_wider_than_the_terminal(recorded: Recorded, terminal: Callable[..., Any], columns: int) -> None:
    """Lists and diagnoses are wrapped; the last line, a command to paste, is not."""
    said, status = ended(terminal(recorded.runs["Photos"].id, columns=columns))
    assert status == 0
    lines = [_bare(line) for line in said.splitlines()]
    assert [line for line in lines if len(line) > columns and not line.startswith("next ")] == []
    assert "\x1b[" in said


def _bare(line: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line)
