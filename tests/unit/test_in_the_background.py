"""These tests themselves, in the background of a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from waits import PATIENCE_S

INTERRUPTED = Path(__file__).with_name("test_start_methods.py")


@pytest.mark.skipif(sys.platform == "win32", reason="no program inherits there what another ignores")
def test_interrupts_arrive_although_the_shell_had_them_ignored() -> None:
    """`make test &` in a script, also with nohup: tests that interrupt themselves pass as in the foreground."""
    in_the_background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    pytest_of_it = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(INTERRUPTED)]
    command, root = in_the_background + pytest_of_it, Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
