"""The code in docs/databricks.md: run in a notebook, cell by cell, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cells import run_cells

PAGE = Path(__file__).parents[2] / "docs" / "databricks.md"
_BLOCK = re.compile(r"(<!-- needs a cluster -->\n)?```python\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[bool, str]]:
    """Whether it needs a cluster, and the code."""
    return [(bool(needs), code) for needs, code in _BLOCK.findall(PAGE.read_text())]


def test_the_page_has_code_that_can_be_run_and_code_that_cannot() -> None:
    """So that the tests below are about something."""
    assert [needs for needs, _ in blocks()] == [False, False, False, True]


def test_code_that_needs_a_cluster_is_python() -> None:
    """It is all that can be said of it here."""
    for needs, code in blocks():
        if needs:
            compile(code, str(PAGE), "exec")


@pytest.mark.long
def test_the_code_of_the_page_runs_in_a_notebook() -> None:
    """In one notebook, in order; with what the page says it shows."""
    loader, trained, failed = run_cells(*(code for needs, code in blocks() if not needs))
    assert [loader.error, trained.error, failed.error] == ["", "", ""]
    assert [loader.left, trained.left, failed.left] == [[], [], []]
    assert "999 samples;" in loader.shown
    assert "record 17 is damaged" in loader.shown
    assert trained.shown.count("is done") == 2
    assert "rank 1 (pid" in failed.shown
    assert "  ranks      rank 0 was running, and was ended with the group" in failed.shown
