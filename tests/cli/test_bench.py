"""`holdfast bench`, as a user runs it: both loaders over a dataset, in processes of their own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
import jsonschema
import numpy as np
import torch
from click.testing import CliRunner, Result

from holdfast.cli.main import main
from holdfast.tasks.bench import play
from holdfast.tasks.bench.digest import digest
from holdfast.tasks.bench.results import HOLDFAST
from waits import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "bench.json").read_text())
SHORT = ("--batch-size", "8", "--seconds", "0.4", "--rounds", "1")


@pytest.fixture(autouse=True)
def datasets_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the child processes of the command, too; and it does not change this process's environment for good."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments], catch_exceptions=False)


def figures(*arguments: str) -> dict[str, Any]:
    """What it prints with --json, which follows its schema."""
    data: dict[str, Any] = json.loads(bench(*arguments, "--json").stdout)
    jsonschema.validate(data, SCHEMA)
    return data


def without_speed(problems: list[str]) -> list[str]:
    """On a busy machine anything may be slow: that is for benchmarks."""
    return [each for each in problems if "slower" not in each]


def test_both_loaders_deliver_the_same_and_are_timed(tmp_path: Path) -> None:
    """Shuffled, with random numbers and the order of a set, in this process and in workers; no record is left of it."""
    data = figures("benched:Good", "--workers", "0,2", "--shuffle", *SHORT)
    assert (data["type"], data["length"], data["arguments"]["batch_size"]) == ("Good", 256, 8)
    assert [cell["workers"] for cell in data["cells"]] == [0, 2]
    for cell in data["cells"]:
        assert cell["batches_equal"] == cell["batches_compared"] > 0
        assert cell["ratio"] > 0
        assert cell["torch"]["first_batch_s"] > 0
        assert without_speed(cell["problems"]) == []
    assert data["cells"][1]["holdfast"]["memory_bytes"] > 0
    assert not (tmp_path / "home").exists()


def test_the_memory_of_workers_is_told_where_the_time_ends_with_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then they are gone by the time it is over."""
    monkeypatch.setattr(play._Clock, "is_over", property(lambda self: self._epoch_batches is not None))
    dataset = torch.utils.data.TensorDataset(torch.arange(8))
    table = play._Table(dataset, None, HOLDFAST, {"batch_size": 4, "sample_timeout": None, "start_method": "fork"})
    told = table.time({"workers": 1, "seconds": 0.1, "memory": True})
    assert (told["batches"], told["epoch_batches"]) == (2, 2)
    assert told["memory_bytes"] > 0


def test_torchs_loader_stops_at_a_crash_and_ours_goes_on() -> None:
    """Which of them failed is said, and at what; text of an exception is no markup, and nothing for a terminal."""
    done = bench("benched:Bad", "--workers", "2", *SHORT)
    assert done.exit_code == 1
    said = " ".join(done.stdout.split())
    words = (
        "torch with 2 workers: could not go on after RuntimeError: DataLoader worker",
        "holdfast with 2 workers: went on past",
        "ValueError: not a [bold]JPEG[/bold]",
        "(sample 5)",
    )
    assert [each for each in words if each not in said] == []
    assert "\x1b" not in done.stdout
    assert "next  holdfast scan benched:Bad" in done.stderr


@pytest.mark.long
def test_torch_tells_of_a_dead_worker_wherever_the_process_is() -> None:
    """Its signal handler raises, in code that has nothing to do with the loader: here mostly while a digest is made."""
    [cell] = figures("benched:Large", "--workers", "2", *SHORT)["cells"]
    assert "could not go on after RuntimeError: DataLoader worker" in cell["torch"]["ended"]
    assert cell["holdfast"]["ended"] is None


@pytest.mark.long
def test_a_loader_that_hangs_is_ended() -> None:
    """With its workers, and it is not waited for again; ours goes on where it has a sample_timeout."""
    data = figures("benched:Hangs", "--workers", "2,1", "--limit", "6", "--sample-timeout", "0.5", *SHORT)
    first, second = data["cells"]
    assert "it hung: no answer within" in first["torch"]["ended"]
    assert second["torch"]["ended"] == "not tried: it hung with 2 workers"
    for cell in data["cells"]:
        assert cell["holdfast"]["ended"] is None
        assert "WorkerTimeout" in cell["holdfast"]["first_failures"][0]


@pytest.mark.long
def test_in_one_process_a_crash_ends_both_and_is_told() -> None:
    """Without workers nothing can be survived: this command can."""
    [cell] = figures("benched:Bad", "--workers", "0", *SHORT)["cells"]
    assert "the whole process died of SIGSEGV" in cell["torch"]["ended"]
    assert "the whole process died of SIGSEGV" in cell["holdfast"]["ended"]


@pytest.mark.long
def test_a_dataset_that_is_never_the_same_is_not_compared() -> None:
    """torch's own batches differ from one epoch to the next: that is no fault of ours."""
    [cell] = figures("benched:Unsteady", "--workers", "1", *SHORT)["cells"]
    assert cell["is_random"]
    assert without_speed(cell["problems"]) == []


@pytest.mark.long
def test_iterables_start_methods_and_collate_functions() -> None:
    """The same arguments for both."""
    arguments = ("--workers", "1", "--start-method", "spawn", "--collate", f"{PROGRAMS}/benched.py:collated")
    [cell] = figures(f"{PROGRAMS}/benched.py:Stream", *arguments, *SHORT)["cells"]
    assert cell["batches_equal"] == cell["batches_compared"] == 8


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no_such_module:x",), "There is no module 'no_such_module'"),
        (("benched:number",), "is no dataset, but an object of int"),
        (("benched:Good", "--collate", "benched:number"), "benched:number is no function"),
        (("benched:Stream", "--shuffle"), "refuses these arguments: ValueError"),
    ],
)
def test_what_only_the_dataset_can_tell_is_wrong_usage_too(arguments: tuple[str, ...], words: str) -> None:
    """It is found by the child process, and said by the command."""
    done = bench(*arguments, *SHORT)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("benched",), "not of the form MODULE:DATASET"),
        (("benched:Good", "--workers", "1,x"), "is not a list of numbers"),
        (("benched:Good", "--workers", "1000"), "is not a list of numbers"),
        (("benched:Good", "--batch-size", "0"), "--batch-size"),
        (("benched:Good", "--seconds", "0"), "--seconds"),
        (("benched:Good", "--start-method", "thread"), "--start-method"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], words: str) -> None:
    """Before anything is started."""
    done = bench(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())


def test_a_comparison_of_torch_with_itself_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """With HOLDFAST_DISABLE=1 ours would be torch's."""
    monkeypatch.setenv("HOLDFAST_DISABLE", "1")
    assert "HOLDFAST_DISABLE is set" in bench("benched:Good").stderr


@pytest.mark.long
@pytest.mark.parametrize("columns", [40, 80])
def test_the_table_fits_a_terminal(columns: int, tmp_path: Path) -> None:
    """In a real one, with its progress on the way."""
    pexpect = pytest.importorskip("pexpect")
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "holdfast", "bench", "benched:Good", "--workers", "1", *SHORT],
        env=environment,
        dimensions=(40, columns),
        timeout=PATIENCE_S,
        encoding="utf-8",
    )
    child.expect_exact("dataset ")
    child.expect(pexpect.EOF)
    said = child.before
    child.close()
    bare = [_bare(line) for line in said.splitlines()]
    assert [line for line in bare if len(line.rstrip()) > columns and not line.startswith("next ")] == []
    assert any("holdfast" in line for line in bare)


def _bare(line: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line)


BATCHES = [
    {"image": torch.arange(6.0).reshape(2, 3), "names": ["a", "b"], "rest": (1, None, b"x")},
    [np.arange(4), torch.tensor([1, 2], dtype=torch.bfloat16), torch.empty(0)],
    torch.eye(3).to_sparse(),
    SimpleNamespace(x=torch.arange(3), names=np.array(["a", None], dtype=object), inner=[np.ones(2)]),
    {"words": {"a", "b"}, "rest": frozenset([1, (2, 3)])},
]


@pytest.mark.parametrize("batch", BATCHES)
def test_equal_batches_have_equal_digests(batch: Any) -> None:
    """Also when one of them lies differently in memory."""
    import copy

    assert digest(copy.deepcopy(batch)) == digest(batch)
    assert digest(torch.arange(6).reshape(2, 3).t()) == digest(torch.tensor([[0, 3], [1, 4], [2, 5]]))


def test_batches_that_differ_have_different_digests() -> None:
    """In a value, a type, a dtype, a shape, or the structure."""
    ones = torch.ones(2, 3)
    others = [ones.double(), ones.reshape(3, 2), ones.reshape(6), ones.numpy(), [ones], (ones,), {"a": ones}, {1}, {2}]
    changed = ones.clone()
    changed[1, 2] = 2
    objects = [SimpleNamespace(x=ones), SimpleNamespace(x=changed), SimpleNamespace(y=ones)]
    digests = [digest(each) for each in (ones, changed, *others, *objects)]
    assert len(set(digests)) == len(digests)
