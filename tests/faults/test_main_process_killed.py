"""After `kill -9` of the main process in mid-epoch nothing is left within two seconds: no process, no name.

The main process can do nothing here: its supervisor and workers must notice by themselves, whatever a worker does.
The time it took is recorded with the test; past five seconds, generous for a busy machine, the test fails.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from helpers import Program, wait_until

pytestmark = pytest.mark.timeout(150)

CASES = [
    *(("fork", state) for state in ("idle", "asleep", "python loop", "C loop")),
    *(("spawn", state) for state in ("idle", "asleep", "C loop")),
    *(("forkserver", state) for state in ("idle", "asleep", "python loop")),
]
DEADLINE_S = 5.0


@pytest.mark.parametrize(("method", "state"), CASES)
def test_nothing_is_left_when_the_main_process_is_killed(
    method: str, state: str, record_property: Callable[[str, object], None]
) -> None:
    """Every start method; workers idle, asleep, busy in Python or in C: all gone, and nobody complains on the way."""
    with Program("stay_in_epoch.py", method, state) as program:
        program.wait_for_lines("ready")
        if state != "idle":
            program.wait_for_lines("stuck", count=2)
        assert len(program.processes()) >= 3, "the mark must be seen on the workers, or this test proves nothing"
        program.process.kill()
        record_property("nothing_left_after_s", round(program.wait_until_nothing_is_left(DEADLINE_S), 3))
        assert program.wait() == -signal.SIGKILL
        assert program.stderr == ""


@pytest.mark.parametrize("state", ["idle", "C loop"])
def test_no_worker_is_left_when_main_process_and_supervisor_are_killed_together(state: str) -> None:
    """Nobody is left who could end the workers: the kernel does, whatever they are doing."""
    with Program("stay_in_epoch.py", "fork", state) as program:
        program.wait_for_lines("ready")
        if state != "idle":
            program.wait_for_lines("stuck", count=2)
        parents = [child.pid for child in psutil.Process(program.process.pid).children() if child.children()]
        assert len(parents) == 1, "one supervisor with workers"
        for pid in (program.process.pid, parents[0]):
            os.kill(pid, signal.SIGKILL)
        program.wait_until_nothing_is_left(DEADLINE_S)


def test_nothing_is_left_although_a_child_of_the_user_lives_on() -> None:
    """A forked child holds copies of every socket and pipe: the end of the main process is noticed all the same."""
    with Program("stay_in_epoch.py", "fork", "asleep", "forked child") as program:
        program.wait_for_lines("ready")
        program.wait_for_lines("stuck", count=2)
        child = next(int(line.split()[1]) for line in program.stdout.splitlines() if line.startswith("child "))
        assert len(program.processes()) >= 4
        program.process.kill()
        wait_until(lambda: set(program.processes()) == {child}, DEADLINE_S, "the end of all but the user's own child")
        os.kill(child, signal.SIGKILL)
        program.wait_until_nothing_is_left(DEADLINE_S)
