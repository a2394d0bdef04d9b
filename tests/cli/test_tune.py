"""`holdfast tune`, as a user runs it: over datasets that wait, compute, fail and iterate."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")
import jsonschema
from click.testing import CliRunner, Result
from rich.console import Console

import holdfast
from holdfast.cli import tune_svg, tune_text
from holdfast.cli.main import main
from holdfast.tasks.tune.facts import Failed, Machine, Measured, Point, Samples, Setting, Spread
from holdfast.tasks.tune.proposal import propose
from holdfast.tasks.tune.session import Outcome
from waits import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "tune.json").read_text())
SHORT = ("--batch-size", "4", "--seconds", "1.5", "--max-workers", "2", "--start-method", "fork")
MB, GB = 10**6, 10**9


@pytest.fixture(autouse=True)
def datasets_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments], catch_exceptions=False)


def figures(*arguments: str, status: int = 0) -> dict[str, Any]:
    """What it prints with --json, which follows its schema."""
    done = tune(*arguments, "--json")
    assert done.exit_code == status, done.output
    data: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    return data


def loader_of(code: str, dataset: str) -> Any:
    """What the code to paste makes."""
    names: dict[str, Any] = {
        "DataLoader": holdfast.DataLoader,
        "dataset": getattr(importlib.import_module("tuned"), dataset)(),
    }
    exec(code, names)
    return names["loader"]


# -- datasets ------------------------------------------------------------------------------------------------------


def test_samples_that_wait_are_proposed_more_workers_than_one(tmp_path: Path) -> None:
    """Every number comes with its reason, the code runs as it is, and no record is left."""
    data = figures("tuned:Waiting", *SHORT, "--seconds", "4")
    assert (data["dataset"], data["length"], data["is_iterable"]) == ("Waiting", 400, False)
    assert data["samples"]["waiting_share"] > 0.5
    assert data["samples"]["seconds"]["median"] >= 0.02
    assert data["samples"]["sample_bytes"]["median"] >= 1024
    assert [point["num_workers"] for point in data["curve"] if not point["is_computed"]] == [1, 2]
    assert data["proposal"]["num_workers"]["value"] == 2
    assert (data["failed"], data["problem"]) == ([], None)
    assert not (tmp_path / "home").exists()
    loader = loader_of(data["code"], "Waiting")
    assert (loader.batch_size, loader.num_workers) == (4, 2)
    assert loader.sample_timeout == data["proposal"]["sample_timeout"]["value"]


@pytest.mark.long
def test_samples_that_compute_do_not_wait() -> None:
    """Whatever else the machine does: waiting for a CPU is not counted. A step of a minute needs one worker."""
    data = figures("tuned:Computing", *SHORT, "--step-seconds", "60")
    assert data["samples"]["waiting_share"] < 0.5
    assert data["proposal"]["num_workers"]["value"] == 1
    assert "a step of 60 s" in data["proposal"]["num_workers"]["reason"]


def test_samples_that_fail_are_passed_over_and_listed() -> None:
    """Exceptions and crashes: exit status 1, with a proposal all the same. Their text is no markup."""
    done = tune("tuned:Failing", *SHORT)
    assert done.exit_code == 1
    assert "samples failed, and were passed over:" in done.stdout
    assert "ValueError: not a [bold]JPEG[/bold]" in done.stdout
    assert "num_workers=" in done.stdout
    assert "\x1b" not in done.output
    assert done.stderr.splitlines()[-1].startswith("next  holdfast scan tuned:Failing ")


@pytest.mark.long
def test_a_sample_that_hangs_does_not_hang_the_command() -> None:
    data = figures("tuned:Hanging", *SHORT, status=1)
    assert any("hung" in failed["reason"] for failed in data["failed"])
    assert {failed["index"] % 80 for failed in data["failed"]} == {0}


def test_where_every_sample_fails_nothing_is_proposed() -> None:
    data = figures("tuned:NoneGood", *SHORT, status=1)
    assert (data["samples"], data["curve"], data["proposal"], data["code"]) == (None, [], None, None)
    assert data["problem"] == "More than 20 samples failed: it was not gone on with."


def test_samples_that_make_no_batch_ask_for_a_collate_fn() -> None:
    done = tune("tuned:Ragged", *SHORT)
    assert done.exit_code == 1
    assert "The samples do not make a batch: RuntimeError: stack expects" in done.stdout
    assert "--collate MODULE:FN" in done.stdout


def test_a_collate_fn_of_the_users_is_used_and_written() -> None:
    data = figures("tuned:Ragged", *SHORT, "--collate", "tuned:listed")
    assert "    collate_fn=listed," in data["code"].splitlines()
    assert '    multiprocessing_context="fork",' in data["code"].splitlines()


@pytest.mark.long
def test_memory_that_is_taken_while_loading_is_in_the_limit() -> None:
    """64 MB, though no sample keeps any of it."""
    data = figures("tuned:Hungry", *SHORT)
    peak = data["samples"]["peak_bytes"]
    if peak is None:
        pytest.skip("memory cannot be measured here")
    assert 60 * MB <= peak < GB
    assert data["proposal"]["memory_limit"]["value"] == "1GB"
    with loader_of(data["code"], "Hungry") as loader:
        assert len(list(itertools.islice(loader, 4))) == 4
        assert list(loader.incidents) == []


def test_workers_that_would_not_fit_in_memory_are_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the reason says what they would need."""
    monkeypatch.setattr("holdfast.memory.cgroups.left_bytes", lambda limited: 740 * MB)
    data = figures("tuned:VeryHungry", *SHORT)
    if data["samples"]["peak_bytes"] is None:
        pytest.skip("memory cannot be measured here")
    assert [point["num_workers"] for point in data["curve"] if not point["is_computed"]] == [1]
    assert "2 would need" in data["proposal"]["num_workers"]["reason"]
    assert "740 MB are left" in data["proposal"]["num_workers"]["reason"]


@pytest.mark.long
def test_an_iterable_whose_workers_repeat_each_other_gets_one() -> None:
    """And its user is told what to do about it."""
    data = figures("tuned:Same", *SHORT)
    assert (data["is_iterable"], data["length"]) == (True, None)
    assert [point["num_workers"] for point in data["curve"] if not point["is_computed"]] == [1]
    assert "the same elements as the others" in data["proposal"]["num_workers"]["reason"]


@pytest.mark.long
@pytest.mark.parametrize("dataset", ["Sharded", "Endless"])
def test_an_iterable_that_divides_its_elements_is_measured_with_more(dataset: str) -> None:
    """One that ends is begun again, one that does not is left."""
    data = figures(f"tuned:{dataset}", *SHORT)
    assert [point["num_workers"] for point in data["curve"] if not point["is_computed"]] == [1, 2]
    assert "the same elements" not in data["proposal"]["num_workers"]["reason"]


def test_a_stream_without_elements_is_told_so() -> None:
    data = figures("tuned:Nothing", *SHORT, status=1)
    assert (data["samples"], data["problem"]) == (None, "It gave no element at all.")


def test_a_stream_that_breaks_is_measured_up_to_there() -> None:
    """A generator cannot go on after an exception; what came before it counts."""
    data = figures("tuned:Breaking", *SHORT, status=1)
    assert data["problem"] == "A loader ended early: ValueError: a broken file"
    assert data["proposal"] is not None


@pytest.mark.long
def test_new_interpreters_are_measured_too() -> None:
    """They take seconds to start, which is in no rate."""
    data = figures("tuned:Waiting", "--batch-size", "4", "--seconds", "4", "--start-method", "spawn")
    assert data["curve"]
    assert data["proposal"]["num_workers"]["value"] >= 1


def test_what_comes_next_is_said_on_stderr() -> None:
    """And nothing of it on stdout, which is for data; what the dataset prints is not there either."""
    done = tune("tuned:Computing", *SHORT)
    assert "loading" not in done.stdout
    assert "next  " not in done.stdout
    assert "Measuring tuned:Computing" in done.stderr
    assert "next  holdfast bench tuned:Computing --workers " in done.stderr
    assert " --batch-size 4 --start-method fork " in done.stderr


# -- wrong usage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tuned",), "MODULE:DATASET"),
        (("no_such_module:x",), "There is no module 'no_such_module'"),
        (("tuned:Waitin",), "Did you mean Waiting?"),
        (("tuned:number",), "is no dataset, but an object of int"),
        (("missing.py:x",), "There is no file missing.py"),
        (("tuned:Empty",), "it has no samples"),
        (("tuned:NoLength",), "its len() raised TypeError"),
        (("tuned:OnlyIterates",), "only as a torch IterableDataset"),
        (("tuned:Waiting", "--collate", "tuned:number"), "is no function"),
        (("tuned:Waiting", "--batch-size", "0"), "--batch-size"),
        (("tuned:Waiting", "--seconds", "0"), "--seconds"),
        (("tuned:Waiting", "--step-seconds", "0"), "--step-seconds"),
        (("tuned:Waiting", "--max-workers", "0"), "--max-workers"),
        (("tuned:Waiting", "--start-method", "thread"), "--start-method"),
        (("tuned:Waiting", "--plot", "curve.png"), "call it curve.svg"),
        (("tuned:Waiting", "--plot", "no/such/folder/curve.svg"), "there is no folder"),
        ((), "MODULE:DATASET"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], said: str) -> None:
    """Before anything is measured, and with the remedy."""
    done = tune(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


def test_torchs_loader_alone_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DISABLE", "1")
    done = tune("tuned:Waiting")
    assert (done.exit_code, "HOLDFAST_DISABLE is set" in done.stderr) == (2, True)


# -- what is printed -----------------------------------------------------------------------------------------------

HOSTILE = "[red]x[/red]<script>&\x1b[31m"


def outcome(**changed: Any) -> tuple[Setting, Outcome]:
    """Of a machine with many CPUs, and words that nobody should trust."""
    setting, machine = Setting(64, 0.05), Machine(16, 60 * GB)
    samples = Samples(
        800, Spread(0.02, 0.05, 0.3), 0.02, 0.5, 0.8, Spread(600_000, 700_000, 800_000), 40 * MB, 0.01, 90 * MB, 8 * MB
    )
    rates = {1: 0.7, 2: 1.4, 4: 2.8, 8: 5.6, 16: 11.0, 32: 21.0}
    curve = tuple(Point(number, rate, 0.9 * rate, 1.1 * rate, 20, 3) for number, rate in rates.items())
    alone = Point(0, 0.75, 0.75, 0.75, 0, 0, is_computed=True)
    values: dict[str, Any] = {
        "dataset": HOSTILE,
        "length": 10_000,
        "machine": machine,
        "seconds": 60.0,
        "samples": samples,
        "curve": (alone, *curve),
        "proposal": propose(Measured(machine, setting, samples, curve)),
        "notes": ("32 workers are the most that were tried.",),
        "failed": tuple(Failed(index, HOSTILE) for index in range(9)),
        "problem": HOSTILE,
        "is_interrupted": True,
    }
    return setting, Outcome(**(values | changed))


def printed(width: int, *, is_terminal: bool = True) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=is_terminal, width=width, highlight=False, legacy_windows=False)
    tune_text.print_outcome(console, f"data:{HOSTILE}", *outcome())
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_line_fits_the_terminal(width: int) -> None:
    """Bars and reasons are as wide as there is room; nothing of the user's is taken for markup or an order."""
    from rich.text import Text

    lines = [Text.from_ansi(line).plain for line in printed(width).splitlines()]
    assert [line for line in lines if len(line) > width] == []
    text = " ".join(" ".join(lines).split())
    assert "[red]x[/red]" in text
    assert "\x1b" not in text
    for name in ("num_workers=", "prefetch_factor=", 'memory_limit="', 'memory_budget="', "sample_timeout="):
        assert text.count(name) == 2  # in the code, and with its reason


def test_a_pipe_gets_plain_characters() -> None:
    """No colour, no blocks, and a reason is one line."""
    text = printed(120, is_terminal=False)
    assert text.isascii()
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("num_workers=")]


def test_the_longest_bar_is_that_of_the_highest_rate() -> None:
    lines = printed(120, is_terminal=False).splitlines()
    bars = {line.split()[0]: line.count("#") for line in lines if line.startswith("   ") and "#" in line}
    assert list(bars) == ["0", "1", "2", "4", "8", "16", "32", "step"]
    assert max(bars.values()) == bars["32"]
    assert bars["1"] < bars["8"] < bars["16"]


def test_what_is_not_known_is_not_printed() -> None:
    """Interrupted before the first sample."""
    stream = io.StringIO()
    nothing = {"samples": None, "curve": (), "proposal": None, "notes": (), "failed": (), "problem": ""}
    tune_text.print_outcome(Console(file=stream, width=80), "data:x", *outcome(**nothing))
    assert stream.getvalue().strip() == "Interrupted, before the first sample."


def test_the_picture_is_one_file_with_every_point() -> None:
    """Well formed, escaped, without scripts, and nothing in it is fetched."""
    drawing = tune_svg.drawn(f"data:{HOSTILE}", *outcome())
    root = ElementTree.fromstring(drawing)
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"0", "1", "2", "4", "8", "16", "32", "21", "workers"} <= set(words)
    assert "the step needs 20" in words
    assert "<script" not in drawing
    assert "http" not in drawing.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.long
def test_the_picture_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "curve.svg"
    figures("tuned:Computing", *SHORT, "--plot", str(file))
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


# -- a real terminal -----------------------------------------------------------------------------------------------


def spawned(*arguments: str, columns: int = 80) -> Any:
    pexpect = pytest.importorskip("pexpect")
    command = ["-m", "holdfast", "tune", *arguments]
    return pexpect.spawn(
        sys.executable, command, cwd=str(PROGRAMS), dimensions=(40, columns), timeout=PATIENCE_S, encoding="utf-8"
    )


@pytest.mark.long
@pytest.mark.parametrize("columns", [80, 40])
def test_a_terminal_shows_how_it_goes_and_then_the_curve(columns: int) -> None:
    """In colour, with blocks, whatever its width."""
    child = spawned("tuned:Waiting", *SHORT, columns=columns)
    with contextlib.closing(child):
        child.expect("batches/s")
        child.expect("█")
        child.expect("loader = DataLoader")
        child.expect(r"sample_timeout=\d+")  # 10 as a rule: more where the machine was so busy that a sample took long
        child.expect_exact(child_end())
        child.wait()
    assert child.exitstatus == 0


def child_end() -> Any:
    import pexpect

    return pexpect.EOF


@pytest.mark.long
def test_an_interrupt_ends_it_with_what_is_known() -> None:
    """Ctrl-C while it measures workers: the proposal so far, no traceback, no process left."""
    child = spawned("tuned:Waiting", "--batch-size", "4", "--seconds", "12", "--start-method", "fork")
    with contextlib.closing(child):
        child.expect("2 workers")
        child.sendintr()
        child.expect("Interrupted, so this is from what was measured by then")
        rest = child.read()
        child.wait()
    assert child.exitstatus == 130
    assert "Traceback" not in rest


@pytest.mark.long
def test_an_interrupt_leaves_whole_json() -> None:
    """On stdout, with what was known, and that it was interrupted."""
    child = spawned("tuned:Waiting", "--batch-size", "4", "--seconds", "12", "--start-method", "fork", "--json")
    with contextlib.closing(child):
        child.expect("2 workers")
        child.sendintr()
        child.expect_exact('"target"')
        data = json.loads('{"target"' + child.read())
        child.wait()
    jsonschema.validate(data, SCHEMA)
    assert (child.exitstatus, data["is_interrupted"]) == (130, True)
    assert data["samples"]["count"] >= 1


@pytest.mark.long
def test_an_interrupt_before_the_first_sample_ends_it_too() -> None:
    child = spawned("tuned:Waiting", "--seconds", "40", "--start-method", "fork")
    with contextlib.closing(child):
        child.expect("Measuring tuned:Waiting")
        child.sendintr()
        rest = child.read()
        child.wait()
    assert child.exitstatus == 130
    assert "Traceback" not in rest
