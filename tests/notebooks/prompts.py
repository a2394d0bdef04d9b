"""Code that is typed, or handed to an interpreter in one of the ways that leave no file behind.

    python -       read from standard input, as a whole
    python -c      an argument
    python -i      read from standard input as if typed, statement by statement
    IPython        typed at its prompt, cell by cell
    IPython -c     an argument

Runs in: the test process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from pathlib import Path

from helpers import MARK, Program
from waits import PATIENCE_S

PROMPTS = {
    "python -": ["-"],
    "python -c": ["-c", "CODE"],
    "python -i": ["-i", "-q", "-"],
    "IPython": ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor"],
    "IPython -c": ["-m", "IPython", "--colors=nocolor", "-c", "CODE"],
}


class Typed(Program):
    """A program that is not a file."""

    def __init__(self, prompt: str, code: str, directory: Path) -> None:
        options = PROMPTS[prompt]
        self.command = [sys.executable, *(code if option == "CODE" else option for option in options)]
        self._mark = f"{MARK}={uuid.uuid4().hex}".encode()
        self._stdin = Path(os.devnull)
        self._directory = directory
        if "CODE" not in options:
            self._stdin = directory / "typed"
            self._stdin.write_text(code)

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "IPYTHONDIR": str(self._directory / "ipython")}


def run_typed(prompt: str, code: str) -> str:
    """What it writes to stdout. It must leave nothing behind."""
    with tempfile.TemporaryDirectory() as directory, Typed(prompt, code, Path(directory)) as program:
        status = program.wait(2 * PATIENCE_S)
        assert status == 0
        assert "Traceback" not in program.stderr
        program.wait_until_nothing_is_left()
        return program.stdout
