"""What a process has started, seen while it lives and ended when it is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from holdfast.workers.descendants import Descendants
from waits import PATIENCE_S, is_running, wait_until

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process, and the pid of the one that it has started, in a session of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield parent, child
        parent.kill()
    if is_running(child):
        psutil.Process(child).kill()


def test_what_was_seen_is_ended_after_its_parent_is_gone(family: tuple[subprocess.Popen[str], int]) -> None:
    parent, child = family
    seen = Descendants()
    seen.look([parent.pid])
    parent.kill()
    parent.wait()
    assert is_running(child)
    seen.end()
    wait_until(lambda: not is_running(child), PATIENCE_S, "its end")


def test_it_is_kept_though_it_is_not_found_again(family: tuple[subprocess.Popen[str], int]) -> None:
    """A later look, when the parent is gone, finds nothing: what was seen before counts."""
    parent, child = family
    seen = Descendants()
    seen.look([parent.pid], at_once=True)
    parent.kill()
    parent.wait()
    seen.look([parent.pid], at_once=True)
    seen.end()
    wait_until(lambda: not is_running(child), PATIENCE_S, "its end")


def test_nothing_else_is_ended(family: tuple[subprocess.Popen[str], int]) -> None:
    """Neither the process itself, nor what is not its own."""
    parent, child = family
    seen = Descendants()
    seen.look([child])
    seen.end()
    assert parent.poll() is None
    assert is_running(child)
