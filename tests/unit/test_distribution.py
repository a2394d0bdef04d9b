"""What is installed, and by which name: `torch-holdfast`, of which the import is `holdfast`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import holdfast
from waits import PATIENCE_S

ROOT = Path(__file__).parents[2]
FOLDERS = [".ci", "benchmarks", "chaos", "docs", "src", "tests", "tools"]
IMPORT = "hold" + "fast"  # in two parts, so that this file has none of what it looks for
WRONG = re.compile(
    rf"\bpip\d? install\b[^\n]*(?<![\w./-]){IMPORT}\b"  # the command
    rf"|(?<![\w-]){IMPORT}\[\w+(, ?\w+)*\]"  # one with an extra, wherever it stands
    rf"|\b(version|distribution|requires|files|metadata)\(\s*['\"]{IMPORT}['\"]"  # looked up as a distribution
)


def our_texts() -> Iterator[tuple[Path, str]]:
    files = [each for each in ROOT.iterdir() if each.is_file()]
    for folder in FOLDERS:
        files += [each for each in (ROOT / folder).rglob("*") if each.is_file()]
    for each in files:
        try:
            yield each, each.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture, or compiled
            continue


@pytest.mark.parametrize(
    "line",
    [
        f"pip install {IMPORT}",
        f"pip3 install -U '{IMPORT}[graph]'",
        f"get it: `{IMPORT}[graph, metrics]`",
        f'metadata.version("{IMPORT}")',
        f"python -m pip install --upgrade {IMPORT}==0.1.1",
    ],
)
def test_a_line_that_names_somebody_elses_package_is_found(line: str) -> None:
    """Of the pattern that the next test looks for."""
    assert WRONG.search(line)
    assert not WRONG.search(line.replace(IMPORT, f"torch-{IMPORT}"))


def test_nothing_sends_anybody_to_somebody_elses_package() -> None:
    """On the package index, the name of our import is an unrelated package: no command, page or message asks for it."""
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path, text in our_texts()
        for match in WRONG.finditer(text)
    ]
    assert found == []


def test_the_distribution_has_the_version_of_the_package() -> None:
    assert metadata.version(f"torch-{IMPORT}") == holdfast.__version__


@pytest.mark.parametrize(("machine", "can_decode"), [("x86_64", True), ("AMD64", True), ("aarch64", False)])
def test_what_names_the_place_of_a_crash_is_always_installed(machine: str, can_decode: bool) -> None:
    """pyelftools everywhere, for symbols; iced-x86 on x86-64, for instructions. Neither is an extra."""
    given = [Requirement(each) for each in metadata.requires(f"torch-{IMPORT}") or ()]
    environment = {"platform_machine": machine, "extra": ""}
    needed = {each.name for each in given if each.marker is None or each.marker.evaluate(environment)}
    assert "pyelftools" in needed
    assert ("iced-x86" in needed) == can_decode


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "installed"), [("demo", ["."]), ("lint", [".", "'.[test,bench]'"])])
def test_the_demo_is_installed_without_the_tools_of_the_tests(target: str, installed: list[str]) -> None:
    """In a folder without an environment: whoever wants to see the demo does not wait for browsers and frameworks."""
    command = ["make", "--dry-run", "VENV=nowhere", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert re.findall(r"pip install .* -e (.*)", done.stdout) == installed
