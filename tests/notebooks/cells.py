"""Cells of notebooks, run in a real Jupyter kernel by `programs/run_notebook.py`. Runs in: the test process."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass

from helpers import Program
from waits import PATIENCE_S


@dataclass(frozen=True)
class Cell:
    """What is typed. With `interrupt_at`, the cell is interrupted when it has shown that text."""

    code: str
    interrupt_at: str = ""


@dataclass(frozen=True)
class Shown:
    """What came of a cell."""

    shown: str
    error: str
    left: list[str]


def run_cells(*cells: str | Cell) -> list[Shown]:
    """Run cells in one kernel. That and all that came from it must be gone when it has ended."""
    typed = [cell if isinstance(cell, Cell) else Cell(cell) for cell in cells]
    sent = json.dumps([{"code": textwrap.dedent(cell.code), "interrupt_at": cell.interrupt_at} for cell in typed])
    with Program("run_notebook.py", sent) as program:
        assert program.wait(2 * PATIENCE_S) == 0
        program.wait_until_nothing_is_left()
        return [Shown(**one) for one in json.loads(program.stdout.splitlines()[-1])]  # the kernel writes there too
