"""Signals that end a program in mid-epoch: it ends as any Python program does, at once, quietly, and leaves nothing."""

from __future__ import annotations

import signal

import psutil
import pytest
import torch

from helpers import CLOSE_DEADLINE_S, Numbers, Program, numbers
from holdfast import DataLoader

pytestmark = pytest.mark.timeout(150)

STATES = ("idle", "asleep", "python loop", "C call", "C loop")


def wait_until_in_state(program: Program, state: str) -> None:
    program.wait_for_lines("ready")
    if state != "idle":
        program.wait_for_lines("stuck", count=2)


def check_only_the_interrupt_of_the_main_process(stderr: str) -> None:
    """One traceback, of a KeyboardInterrupt: nothing from workers, supervisor, finalizers or exit hooks."""
    lines = stderr.splitlines()
    assert lines, "Ctrl-C without a word"
    assert lines[0] == "Traceback (most recent call last):", stderr
    assert lines[-1] == "KeyboardInterrupt", stderr
    assert stderr.count("Traceback") == 1, stderr
    assert all(line.startswith("  ") for line in lines[1:-1]), stderr
    assert "Exception ignored" not in stderr


@pytest.mark.parametrize(
    ("method", "state"),
    [*(("fork", state) for state in STATES), ("spawn", "idle"), ("spawn", "asleep"), ("forkserver", "python loop")],
)
def test_ctrl_c_ends_the_program_with_its_own_traceback_only(method: str, state: str) -> None:
    """SIGINT to every process, as a terminal sends it: one traceback, the status of an interrupt, nothing left."""
    with Program("stay_in_epoch.py", method, state) as program:
        wait_until_in_state(program, state)
        program.signal_group(signal.SIGINT)
        assert program.wait(CLOSE_DEADLINE_S) == -signal.SIGINT
        program.wait_until_nothing_is_left()
        check_only_the_interrupt_of_the_main_process(program.stderr)


@pytest.mark.parametrize("state", [pytest.param("idle", marks=pytest.mark.long), "asleep"])
def test_a_program_that_catches_ctrl_c_goes_on_quietly(state: str) -> None:
    """A trainer that catches KeyboardInterrupt and closes its loader ends with status 0 and says nothing."""
    with Program("stay_in_epoch.py", "fork", state, "catch") as program:
        wait_until_in_state(program, state)
        program.signal_group(signal.SIGINT)
        assert (program.wait(CLOSE_DEADLINE_S), program.stderr) == (0, "")
        assert program.stdout.splitlines()[-1] == "caught"
        program.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    ("method", "state"), [("fork", "idle"), ("fork", "asleep"), ("fork", "C loop"), ("spawn", "asleep")]
)
def test_sigterm_to_the_main_process_leaves_nothing(method: str, state: str) -> None:
    """The default action ends the main process without any clean-up of its own: its workers follow, quietly."""
    with Program("stay_in_epoch.py", method, state) as program:
        wait_until_in_state(program, state)
        program.process.send_signal(signal.SIGTERM)
        assert program.wait(CLOSE_DEADLINE_S) == -signal.SIGTERM
        program.wait_until_nothing_is_left()
        assert program.stderr == ""


def test_sigterm_to_every_process_leaves_nothing() -> None:
    """As a batch system ends a job: workers and supervisor get the signal too, and nobody complains about them."""
    with Program("stay_in_epoch.py", "fork", "asleep") as program:
        wait_until_in_state(program, "asleep")
        program.signal_group(signal.SIGTERM)
        assert program.wait(CLOSE_DEADLINE_S) == -signal.SIGTERM
        program.wait_until_nothing_is_left()
        assert program.stderr == ""


@pytest.mark.parametrize("state", ["idle", pytest.param("asleep", marks=pytest.mark.long)])
def test_a_sigterm_handler_that_exits_ends_the_program_with_its_status(state: str) -> None:
    """`sys.exit` from a signal handler, while the main process steps or waits in `next()`."""
    with Program("stay_in_epoch.py", "fork", state, "exit on SIGTERM") as program:
        wait_until_in_state(program, state)
        program.process.send_signal(signal.SIGTERM)
        assert (program.wait(CLOSE_DEADLINE_S), program.stderr) == (5, "")
        program.wait_until_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_the_program_ignores_is_ignored_by_all_of_it(number: signal.Signals) -> None:
    """`nohup`, and a terminal that is closed: supervisor and workers stay, as torch's workers do."""
    before = signal.signal(number, signal.SIG_IGN)
    # multiprocessing's own, from earlier tests: one that dies of it is a warning in whichever test needs it next
    others = set(psutil.Process().children(recursive=True))
    try:
        with DataLoader(Numbers(80), 4, num_workers=2) as loader:
            iterator = iter(loader)
            first = next(iterator)
            for process in set(psutil.Process().children(recursive=True)) - others:
                process.send_signal(number)
            assert torch.equal(torch.cat([first, *iterator]), numbers(0, 80, 4))
            assert (loader.stats().supervisor_restarts, loader.stats().restarts) == (0, 0)
    finally:
        signal.signal(number, before)
