"""`holdfast scan` as a user runs it: real crashes, a real terminal, real signals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import jsonschema

from cli import scanned
from holdfast import DataLoader, HoldfastWarning
from waits import PATIENCE_S, is_running, wait_until

DATASETS = Path(__file__).parent / "scanned.py"
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schemas/scan.json").read_text())
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a scan of this test runs and writes."""
    folder = tmp_path / "here"
    folder.mkdir()
    shutil.copy(DATASETS, folder / "scanned.py")
    monkeypatch.chdir(folder)
    return folder


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"scanned.py", "__pycache__"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", "scan", *arguments]


def scan(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end, its output piped."""
    environment = os.environ | variables
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment
    )


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What it printed with --json, once that is as the schema says."""
    data: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    return data


def test_every_bad_sample_is_found_with_its_cause(own_folder: Path, tmp_path: Path) -> None:
    """Exception, crash, exit, hang, memory, wrong shape, wrong dtype, no sample at all; the slowest and the largest.

    What the dataset prints is not in the data. The file that was written is taken by the loader, which then meets no
    bad sample. The record remembers the dataset, for `holdfast replay`, and that nobody trained.
    """
    arguments = ["scanned.py:faulty", "--json", "--timeout", "1.5", "--memory-limit", "1GB", "--workers", "2"]
    done = scan(*arguments, HOLDFAST_HOME=str(tmp_path / "home"))
    assert done.returncode == 1
    data = figures(done)
    assert "a dataset that prints" in done.stderr
    assert {bad["index"]: bad["cause"] for bad in data["bad"]} == {
        scanned.RAISES: "dataset exception",
        scanned.SEGFAULTS: "segmentation fault",
        scanned.EXITS: "exit by user code",
        scanned.HANGS: "hang",
        scanned.EATS: "over memory_limit",
        scanned.UNFINISHED: "dataset exception",
    }
    assert all(bad["in_skipped_file"] and re.fullmatch(r"[0-9a-f]+\.\d+", bad["incident"]) for bad in data["bad"])
    assert {odd["index"]: odd["differs"] for odd in data["odd"]} == {
        scanned.GREY: "['image'] is 1 x 8 x 8, not 3 x 8 x 8",
        scanned.DOUBLE: "['image'] is tensor float64 3 x 8 x 8, not tensor float32",
        scanned.NOTHING: "is None, not ['image'] tensor float32 3 x 8 x 8, ['label'] int, ['text'] str, "
        "['tokens'] tensor float32 any",
    }
    assert (data["slowest"][0]["index"], data["largest"][0]["index"]) == (scanned.SLOW, scanned.LARGE)
    assert (data["loaded"], data["finished"]) == (scanned.SAMPLES - len(scanned.BAD), True)
    assert data["skipped_file"] == {"path": "faulty.skipped.jsonl", "samples": len(scanned.BAD)}
    assert written(own_folder) == {"faulty.skipped.jsonl"}
    _check_that_the_loader_takes_it(Path("faulty.skipped.jsonl"))
    _check_the_record(tmp_path / "home" / "runs", data)


def _check_that_the_loader_takes_it(path: Path) -> None:
    arguments: dict[str, Any] = {"num_workers": 2, "on_error": "skip", "skipped_file": path, "collate_fn": len}
    with DataLoader(scanned.faulty, 10, **arguments) as loader:
        with pytest.warns(HoldfastWarning, match="6 samples listed in skipped_file"):
            loaded = sum(loader)
        assert loaded == scanned.SAMPLES - len(scanned.BAD)
        assert loader.incidents.total == 0


def _check_the_record(runs: Path, data: dict[str, Any]) -> None:
    (record,) = runs.iterdir()
    start, *rest = map(json.loads, record.read_text().splitlines())
    said = (start["target"], start["dataset"], start["command"])
    assert said == (f"{Path.cwd()}/scanned.py:faulty", "Faulty", "scan")
    noted = {f"{start['id']}.{line['number']}": line["sample_index"] for line in rest if line["kind"] == "incident"}
    assert {bad["incident"]: bad["index"] for bad in data["bad"]}.items() <= noted.items()


@pytest.mark.long
def test_piped_it_prints_plain_tables_and_no_progress(own_folder: Path) -> None:
    """Many bad samples are put together by what happened; hostile text is text; the next command is named."""
    done = scan("scanned.py:many", "--workers", "2")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout + done.stderr
    assert "━" not in done.stderr
    assert re.search(r"16 +dataset exception +raised ValueError: bad 0 at scanned.py:\d+ in __getitem__", done.stdout)
    assert re.search(r"16 +exit by user code +exited with status 5 .* 1, 4, 7, 10, 13, 16 and 10 more", done.stdout)
    assert "48 samples scanned: 32 bad, in " in done.stdout
    assert "many.skipped.jsonl lists 32 samples." in done.stdout
    assert "Scanning 48 samples of scanned.py:many (Many) with 2 workers." in done.stderr


@pytest.mark.long
def test_all_lists_every_bad_sample() -> None:
    """One row for each, with its incident."""
    done = scan("scanned.py:many", "--workers", "2", "--all")
    assert len(re.findall(r"raised ValueError: bad \d+ at .* [0-9a-f]+\.\d+ ", done.stdout)) == 16


@pytest.mark.long
def test_good_samples_end_with_0() -> None:
    """And say so."""
    done = scan("scanned.py:good", "--start-method", "spawn")
    assert done.returncode == 0
    assert "60 samples scanned: all good, in " in done.stdout


# -- interrupted -------------------------------------------------------------------------------------------------------


def start(*arguments: str, columns: int, **variables: str) -> Any:
    """In a terminal of so many columns."""
    pexpect = pytest.importorskip("pexpect")
    environment = os.environ | {"TERM": "xterm-256color"} | variables
    program, *rest = command(*arguments)
    return pexpect.spawn(
        program,
        rest,
        dimensions=(30, columns),
        timeout=PATIENCE_S,
        encoding="utf-8",
        codec_errors="replace",  # the terminal shows ^C, perhaps in the midst of a character of ours
        env=environment,
    )


def ended(child: Any) -> str:
    """All that it still prints, without colours. Its exit status is then known."""
    child.expect(child_end())
    text: str = ANSI.sub("", child.before)
    child.wait()  # by itself: `close` waits for a tenth of a second, and then ends it
    child.close()
    return text


def child_end() -> Any:
    return pytest.importorskip("pexpect").EOF


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    """As long as this file is there no scan of `steady` comes to its end."""
    path = tmp_path / "hold"
    path.touch()
    return path


@pytest.mark.long
def test_interrupted_in_a_terminal_it_is_continued(own_folder: Path, hold: Path) -> None:
    """A bar with rate and time left; Ctrl-C ends it with 130, and how to go on; the same command goes on.

    On 40 columns no line is wider.
    """
    child = start("scanned.py:steady", "--again", "--workers", "2", columns=80, SCANNED_HOLD=str(hold))
    child.expect(r"Scanning 400 samples of scanned.py:steady \(Steady\) with 2 workers\.")
    child.expect(r"\d+/400.*\d+/s.*0:\d\d.*[1-7] bad")
    for _ in range(3):  # an impatient user
        child.sendintr()
    text = ended(child)
    assert child.exitstatus == 130, text
    assert re.search(r"next  holdfast scan scanned.py:steady --workers 2 +continues where this one stopped", text)
    scanned_so_far = int(re.search(r"(\d+) of 400 samples scanned so far", text)[1])  # type: ignore[index]
    assert "Traceback" not in text
    assert written(own_folder) == {"steady.skipped.jsonl.scan", "steady.skipped.jsonl.new"}

    hold.unlink()
    child = start("scanned.py:steady", "--workers", "2", columns=40)
    text = ended(child)
    assert child.exitstatus == 1, text
    assert f"{scanned_so_far} of them were scanned before." in " ".join(text.split())
    assert "400 samples scanned: 8 bad" in " ".join(text.split())
    assert "Traceback" not in text
    lines = text.replace("\r", "\n").split("\n")
    pasted = ("DataLoader(", "Scanning", "next  ")  # whole on one line, which the terminal wraps
    assert max(len(line) for line in lines if not any(words in line for words in pasted)) <= 40
    assert written(own_folder) == {"steady.skipped.jsonl"}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ended_from_outside_it_is_continued(
    number: signal.Signals, own_folder: Path, hold: Path, tmp_path: Path
) -> None:
    """SIGTERM ends it with 143; kill -9 at once. No process is left, and the same command goes on."""
    loaded = tmp_path / "loaded"
    child = subprocess.Popen(
        command("scanned.py:steady", "--workers", "2", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"SCANNED_FOLDER": str(tmp_path), "SCANNED_HOLD": str(hold)},
    )
    wait_until(lambda: loaded.exists() and loaded.read_text().count("\n") > 150, PATIENCE_S, "150 samples")
    children = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
    child.send_signal(number)
    output = child.communicate(timeout=PATIENCE_S)[0]
    assert child.returncode == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    if number == signal.SIGTERM:
        data = json.loads(output)
        jsonschema.validate(data, SCHEMA)
        assert (data["finished"], data["signal"]) == (False, 15)
    wait_until(lambda: not any(map(is_running, children)), PATIENCE_S, "the end of the supervisor")
    first = loaded.read_text().split()
    hold.unlink()
    data = figures(scan("scanned.py:steady", "--workers", "2", "--json", SCANNED_FOLDER=str(tmp_path)))
    again = loaded.read_text().split()[len(first) :]
    assert data["scanned_before"] > 0
    assert len(again) <= 400 - data["scanned_before"]
    assert [bad["index"] for bad in data["bad"]] == list(range(25, 400, 50))
    assert {*map(int, first), *map(int, again)} == set(range(400))
    assert written(own_folder) == {"steady.skipped.jsonl"}


# -- wrong usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere:train"], "There is no module 'nowhere'"),
        (["nowhere.py:train"], "There is no file nowhere.py"),
        (["scanned.py"], "not of the form MODULE:DATASET"),
        (["scanned.py:goood"], "Did you mean good?"),
        (["scanned.py:SAMPLES"], "is no dataset"),
        (["scanned.py:lengthless"], "does not say how many samples it has"),
        (["scanned.py:elements", "--sample", "5"], "--sample needs indices"),
        (["scanned.py:good", "--workers", "0"], "Invalid value for '--workers'"),
        (["scanned.py:good", "--timeout", "0"], "Invalid value for '--timeout'"),
        (["scanned.py:good", "--timeout", "inf"], "--timeout inf must be a number of seconds"),
        (["scanned.py:good", "--timeout", "nan"], "--timeout nan must be a number of seconds"),
        (["scanned.py:good", "--memory-limit", "much"], "must be a number of bytes"),
        (["scanned.py:good", "--skipped-file", "scanned.py"], "it is not a file of skipped samples"),
        (["scanned.py:good", "--skipped-file", "no/where"], "cannot be written"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is wrong and what to do, on stderr, and nothing on stdout."""
    from click.testing import CliRunner

    from holdfast.cli.main import main

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "scanned", raising=False)
    monkeypatch.setenv("HOLDFAST_TARGET", "")
    monkeypatch.setenv("HOLDFAST_COMMAND", "")
    done = CliRunner().invoke(main, ["scan", *arguments])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert words in " ".join(done.stderr.split())


@pytest.mark.parametrize("script", ["import sys\nsys.exit('usage: script.py DATA')", "import sys\ndata = sys.exit"])
def test_a_script_that_ends_when_it_is_imported_is_wrong_usage(
    script: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that names something as its dataset that does: the command does not end as that would, and says why."""
    from click.testing import CliRunner

    from holdfast.cli.main import main

    monkeypatch.setenv("HOLDFAST_TARGET", "")
    monkeypatch.delitem(sys.modules, "script", raising=False)
    (own_folder / "script.py").write_text(script)
    done = CliRunner().invoke(main, ["scan", "script.py:data"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "ends the program, by sys.exit(" in done.stderr


def test_a_scan_with_torchs_loader_alone_is_wrong_usage() -> None:
    """With HOLDFAST_DISABLE=1 the first crash would end it."""
    from click.testing import CliRunner

    from holdfast.cli.main import main

    done = CliRunner().invoke(main, ["scan", "x:y"], env={"HOLDFAST_DISABLE": "1"})
    assert done.exit_code == 2
    assert "HOLDFAST_DISABLE is set" in done.stderr
