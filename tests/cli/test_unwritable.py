"""Commands whose stdout is closed, full, or a pipe that nobody reads any more: as a shell starts them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import IO

import pytest

from waits import PATIENCE_S

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="it loads samples")
COMMANDS = [
    pytest.param(("--help",), id="help", marks=pytest.mark.long),
    pytest.param(("top", "--once"), id="text"),
    pytest.param(("top", "--json"), id="json"),
    pytest.param(("scan", "few_numbers.py:few"), id="scan", marks=[pytest.mark.long, needs_torch]),
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    Path("few_numbers.py").write_text("few = [1, 2, 3]\n")


@pytest.fixture
def nobody() -> Iterator[IO[bytes]]:
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        yield pipe


def run(*arguments: str, stdout: IO[bytes] | int = PIPE, closed: str = "") -> CompletedProcess[str]:
    """`closed`: what a shell is told, as in `>&-`."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=PIPE, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_stdout_is_said_in_a_line(arguments: tuple[str, ...]) -> None:
    """The status is neither that of health nor that of problems found."""
    with Path("/dev/full").open("wb") as full:
        done = run(*arguments, stdout=full)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == "Error: stdout cannot be written: No space left on device."
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", COMMANDS[1:])
def test_a_closed_stdout_is_said_before_anything_is_done(arguments: tuple[str, ...]) -> None:
    """No minute is spent on what nobody will see, and nothing is printed into a file that took its place."""
    done = run(*arguments, closed=">&-")
    assert (done.returncode, done.stderr) == (2, "Error: stdout cannot be written: it is closed.\n")
    assert not list(Path.cwd().glob("*.jsonl"))


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_reader_who_has_gone_is_no_error(arguments: tuple[str, ...], nobody: IO[bytes]) -> None:
    """As behind `| head -1`: nothing is said of it."""
    done = run(*arguments, stdout=nobody)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if not line.startswith("Scanning ")] == []


@pytest.mark.parametrize("arguments", COMMANDS[1:])
def test_without_stderr_the_data_comes_all_the_same(arguments: tuple[str, ...]) -> None:
    """Talk has nowhere to go then, and what a dataset prints has not either."""
    done = run(*arguments, closed="2>&- <&-")
    assert done.returncode == 0
    assert done.stdout
    assert "\0" not in done.stdout


def test_a_script_has_its_streams_as_they_are() -> None:
    """`holdfast run script.py >&-` is as `python script.py >&-`: its prints go nowhere, and that is no error."""
    Path("quiet.py").write_text("import sys\nprint('x')\nassert sys.stdout is None\nsys.exit(7)\n")
    assert run("run", "--quiet", "quiet.py", closed=">&-").returncode == 7
