"""A real terminal for commands: a pane of tmux, and what is on it.

Every pane has a server of its own, which ends with it. Needs no torch. Runs in: the test process.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from waits import PATIENCE_S, wait_until

PROMPT = "done:"


class Terminal:
    """One pane with a shell in it."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", os.devnull, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return done.stdout

    def type(self, *keys: str) -> None:
        """Keys as tmux names them: "q", "C-c", "Enter"."""
        self.tmux("send-keys", *keys)

    def run(self, *command: str) -> None:
        """Run a command in the shell, which says its exit status when it is over."""
        self.type(f"{shlex.join(command)}; echo {PROMPT} $?", "Enter")

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def children(self) -> list[int]:
        """What the shell has started, by pid."""
        shell = psutil.Process(int(self.tmux("display-message", "-p", "#{pane_pid}")))
        return [child.pid for child in shell.children(recursive=True)]

    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.tmux("capture-pane", "-p").splitlines()]

    def text(self) -> str:
        return "\n".join(self.rows())

    def shows(self, is_there: Callable[[str], object] | str) -> str:
        """Wait until the screen has it; return the screen."""
        check = is_there if callable(is_there) else lambda text: is_there in text
        screens = [""]

        def look() -> object:
            screens[0] = self.text()
            return check(screens[0])

        try:
            wait_until(look, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"not shown: {is_there}\n{screens[0]}") from None
        return screens[0]


@contextlib.contextmanager
def terminal(columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """A terminal of that size, in which `python` is this one. Skips the test where there is no tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: the path of a socket has to be short
        made = Terminal(Path(folder, "tmux"))
        shell = "env -u COLUMNS -u LINES PS1='$ ' sh"  # which would count for more than the real size
        made.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), shell)
        try:
            made.shows("$")
            yield made
        finally:
            made.tmux("kill-server")


HOLDFAST = (sys.executable, "-m", "holdfast")
