"""`holdfast demo`, as a user runs it, and the account it takes of an epoch."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

pytest.importorskip("torch")
from holdfast import WorkerCrashed
from holdfast.cli.demo import QUICK, run_speed
from holdfast.cli.demo_tables import print_no_speed
from holdfast.demo import speed
from holdfast.demo.faults import FAULTS
from holdfast.demo.outcomes import FINISHED, Outcome, PassedOver, problems_of
from holdfast.demo.stock import run_epochs
from holdfast.records import reader
from holdfast.records.reader import Run
from terminal import HOLDFAST, PROMPT, terminal

LIMIT_S = 120.0
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "demo.json").read_text())
CRASHES = next(fault.sample for fault in FAULTS if fault.name == "segfaults")


def holdfast_command(
    *arguments: str, before: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m holdfast` with these arguments, to its end. `before`: what is to run it."""
    command = [*before, sys.executable, "-m", "holdfast", *arguments]
    environment = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)


def figures(*arguments: str, before: tuple[str, ...] = (), **variables: str) -> dict[str, Any]:
    """Run the demo with --json; return what it printed, once it has ended with 0 and without a word on stderr."""
    done = holdfast_command("demo", "--quick", "--batches", "4", "--json", *arguments, before=before, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    data: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    return data


def first_crash(run: Run) -> str:
    """The id of that incident: the second as a rule, but on a busy machine any sample may take too long before it."""
    line = next(line for line in run.incidents if "segmentation" in line["summary"])
    assert line["sample_index"] == CRASHES
    return f"{run.id}.{line['number']}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_demo_ends_torchs_epoch_and_not_ours(home: Path) -> None:
    """Five bad samples: torch's loader stops at one of them, ours delivers every batch and lists what was replaced.

    Our epoch is a run like any other, with a record and a page; that of torch and the speed part leave none.
    """
    data = figures("--on-error", "replace")
    torchs, ours = data["faults"]["torch"], data["faults"]["holdfast"]
    assert data["whole"]
    assert torchs["batches"] < data["faults"]["batches"]
    assert torchs["ended"] != FINISHED
    assert (ours["batches"], ours["ended"], ours["problems"]) == (data["faults"]["batches"], FINISHED, [])
    skipped = {one["sample"]: one["replaced_by"] for one in ours["skipped"]}
    assert {fault.sample for fault in FAULTS if fault.name != "is killed"} <= set(skipped)
    assert ours["samples"] == data["faults"]["samples"]
    assert not {None, *skipped} & set(skipped.values())
    assert {fault.sample for fault in FAULTS} <= {one["sample"] for one in ours["incidents"]}
    assert data["speed"]["equal"] == data["speed"]["batches"] == 4
    assert data["speed"]["ratio"] is None  # so few say nothing
    (run,) = reader.all_runs()
    assert (run.id, run.start["target"]) == (data["run"], "holdfast.demo.faults:samples")
    assert [one["id"] for one in ours["incidents"]] == [f"{run.id}.{n + 1}" for n in range(len(run.incidents))]
    assert Path(data["report"]).stat().st_size > 0


@pytest.mark.long
def test_a_terminal_shows_our_epoch_while_it_runs(home: Path) -> None:
    """The workers and the sample that hangs, as `holdfast top` shows them; then tables, the report, what is next."""
    hangs = next(fault.sample for fault in FAULTS if fault.name == "hangs")
    with terminal(80, 50) as shell:
        shell.run(*HOLDFAST, "demo", "--quick", "--batches", "2")
        live = shell.shows(lambda text: f"loading sample {hangs}" in text and "segmentation" in text)
        assert " of 24\n" in live
        assert "worker  doing" in live
        end = shell.shows(f"{PROMPT} 0")
    assert "loading sample" not in end
    (run,) = reader.all_runs()
    assert f"holdfast report {run.id}" in end
    assert f"holdfast replay {first_crash(run)}   load sample {CRASHES} alone" in end
    assert "report    " in end
    assert all(len(row) <= 80 for row in end.splitlines())


@pytest.mark.long
def test_what_the_demo_names_next_works(home: Path) -> None:
    """The report of its run, and the crash of its sample, by the commands as they are printed."""
    run_id = figures()["run"]
    told = holdfast_command("report", run_id, "--text")
    assert told.returncode in (0, 1)
    assert "segmentation fault" in told.stdout
    (run,) = reader.all_runs()
    replayed = holdfast_command("replay", first_crash(run))
    assert replayed.returncode == 1
    assert str(CRASHES) in replayed.stdout + replayed.stderr


@pytest.mark.long
def test_the_demo_prints_both_loaders(home: Path) -> None:
    """Without --json: tables on stdout; where stderr is no terminal, only what is next, in no colour."""
    done = holdfast_command("demo", "--quick", "--batches", "2")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert all(line.startswith("next  holdfast ") for line in done.stderr.splitlines())
    said = (
        "24 of 24",
        "whole: every sample came",
        "segmentation fault",
        "exited with status 3",
        "skipped",
        "batches per",
        "2 batches are too few to compare rates: try --batches 10 or more",
    )
    assert [words for words in said if words not in done.stdout] == []


@pytest.mark.long
def test_without_a_place_for_records_the_demo_has_none(home: Path) -> None:
    """And names no command that would need one."""
    data = figures(HOLDFAST_HOME=os.devnull)
    assert (data["run"], data["report"]) == (None, None)
    assert {one["id"] for one in data["faults"]["holdfast"]["incidents"]} == {""}


@pytest.mark.long
def test_the_demo_on_forty_columns(home: Path) -> None:
    """The live view and the tables fit; only commands and paths go on in the next row."""
    with terminal(40, 100) as shell:
        shell.run(*HOLDFAST, "demo", "--quick", "--batches", "2")
        shell.shows("loading 107")
        end = shell.shows(f"{PROMPT} 0")
    assert "how it" in end
    assert "whole:" in end


@pytest.mark.long
def test_an_interrupted_demo_leaves_the_terminal_in_order(home: Path) -> None:
    """Ctrl-C while the live view is drawn: no traceback, and the cursor is there again."""
    with terminal() as shell:
        shell.run(*HOLDFAST, "demo", "--quick")
        shell.shows("loading sample 107")
        shell.type("C-c")
        end = shell.shows(f"{PROMPT} 1")
        assert "Traceback" not in end
        assert shell.tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def test_a_torch_that_cannot_do_the_work_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no room, or dies of a bus error, where /dev/shm is small, as in containers. What ours raises is raised."""
    died = RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")
    died.__cause__ = RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. ")
    monkeypatch.setattr(speed, "count_equal", raising(died))
    result = run_speed(Console(file=io.StringIO()), 2, 4, QUICK)
    assert (result.batches, result.equal, result.ratio) == (4, 0, None)
    told = io.StringIO()
    print_no_speed(Console(file=told), str(result.torch_failed))
    assert "could not do it here: RuntimeError: DataLoader worker (pid 7) is killed" in " ".join(
        told.getvalue().split()
    )
    monkeypatch.setattr(speed, "count_equal", raising(WorkerCrashed("sample 3")))
    with pytest.raises(WorkerCrashed):
        run_speed(Console(file=io.StringIO()), 2, 4, QUICK)


@pytest.mark.root
@pytest.mark.long
def test_the_demo_in_a_container_with_a_small_dev_shm(home: Path) -> None:
    """64 MB, in a mount namespace of its own: too little for torch's batches, and no matter to ours."""
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    probe = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, timeout=30, check=False)
    if probe.returncode != 0:
        pytest.skip("needs root and `unshare --mount` to mount a small /dev/shm")
    data = figures(before=("unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"))
    assert data["whole"]
    assert data["speed"]["torch_failed"] is not None


@pytest.mark.parametrize(
    "arguments",
    [("demo", "--workers", "0"), ("demo", "--batches", "1"), ("demo", "--on-error", "raise"), ("demo", "x"), ("dmo",)],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    """And says so on stderr, before anything is run."""
    done = holdfast_command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: holdfast" in done.stderr


def test_a_demo_of_torchs_loader_alone_is_wrong_usage() -> None:
    """With HOLDFAST_DISABLE=1 ours would be torch's, and end as it does."""
    done = holdfast_command("demo", HOLDFAST_DISABLE="1")
    assert done.returncode == 2
    assert "HOLDFAST_DISABLE is set" in done.stderr


def test_the_command_line_starts_without_torch() -> None:
    """Help and wrong usage cost no import of torch, and work where torch is broken."""
    program = "import sys; import holdfast.cli.main; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.long
def test_torchs_epochs_do_not_know_of_each_other() -> None:
    """With more workers several samples are met at once: a worker that dies when the epoch is over ends no other."""
    names = [fault.name for fault in FAULTS]
    outcomes = run_epochs([names] * 8, 4, timeout_s=2, limit_s=LIMIT_S, on_batch=lambda number, state: None)
    assert [outcome.ended for outcome in outcomes if "Error: " not in outcome.ended] == []


@pytest.mark.long
def test_torchs_epoch_is_ended_at_the_limit() -> None:
    """Without a timeout of its own it waits for ever for a sample that hangs."""
    hangs, never = run_epochs([["hangs"], ["raises"]], 2, timeout_s=0, limit_s=5, on_batch=lambda number, state: None)
    assert hangs.ended.startswith("not ended after")
    assert hangs.batches < 24
    assert never.batches == 0


PLAN = [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("delivered", "passed_over"),
    [
        (PLAN, []),
        ([[0, 1], [3], [4, 5]], [PassedOver(2, "raised", None)]),
        ([[0, 1], [4, 5]], [PassedOver(2, "raised", None), PassedOver(3, "hung", None)]),
        ([[0, 1], [3, 3], [4, 5]], [PassedOver(2, "raised", 3)]),
    ],
)
def test_an_epoch_is_whole(delivered: list[list[int]], passed_over: list[PassedOver]) -> None:
    """Every sample in its place, or listed; a batch that lost all of its samples does not come."""
    assert problems_of(Outcome(delivered, FINISHED), PLAN, passed_over) == []


@pytest.mark.parametrize(
    ("delivered", "ended", "problem"),
    [
        ([[0, 1]], "RuntimeError: died", "the epoch ended with: RuntimeError: died"),
        ([[0, 1], [2, 3]], FINISHED, "2 batches came, not 3"),
        ([[0, 1], [4, 5], [2, 3]], FINISHED, "batch 1 is [4, 5], not [2, 3]"),
        ([[0, 1], [3], [4, 5]], FINISHED, "batch 1 is [3], not [2, 3]"),
    ],
)
def test_an_epoch_is_not_whole(delivered: list[list[int]], ended: str, problem: str) -> None:
    """Ended early, a batch too few, out of order, or a sample missing that is not listed."""
    assert problem in problems_of(Outcome(delivered, ended), PLAN, [])
