"""The interpreter ends in mid-epoch: no hang, the program's own exit status, not a word on stderr, nothing left."""

from __future__ import annotations

import pytest

from helpers import PATIENCE_S, Program

pytestmark = pytest.mark.timeout(150)

STATUS = {"sys_exit": 3, "os_exit": 4}
QUIET = (
    "end_of_script",
    "persistent_workers",
    "persistent_workers_between_epochs",
    "sys_exit",
    "thread",
    "ended_thread",
    "waiting_daemon_thread",
    "busy_daemon_threads",
    "stuck_workers",
    "reference_cycle",
    "two_iterators",
    "os_exit",
)
LATER = {"sys_exit", "thread", "ended_thread", "persistent_workers_between_epochs", "reference_cycle"}
CASES = [
    *(pytest.param("fork", how, marks=pytest.mark.long if how in LATER else ()) for how in QUIET),
    ("spawn", "end_of_script"),
    ("spawn", "stuck_workers"),
    ("forkserver", "persistent_workers"),
]


@pytest.mark.parametrize(("method", "how"), CASES)
def test_the_interpreter_ends_quietly_with_the_iterator_alive(method: str, how: str) -> None:
    """The exit status is the program's own, stderr is empty, and no process or name is left."""
    with Program("leave_epoch.py", method, how) as program:
        status = program.wait(PATIENCE_S)
        assert (status, program.stderr) == (STATUS.get(how, 0), "")
        program.wait_until_nothing_is_left()


def test_an_exception_that_ends_the_program_shows_only_itself() -> None:
    """The user's traceback, once, and nothing about workers."""
    with Program("leave_epoch.py", "fork", "exception") as program:
        assert program.wait(PATIENCE_S) == 1
        program.wait_until_nothing_is_left()
        assert program.stderr.splitlines()[-1] == "LookupError: from the training loop"
        assert program.stderr.count("Traceback") == 1
        assert program.stderr.count("\nException ignored") == 0
