"""`holdfast.spawn` in whole programs: what is left when they end, are interrupted or killed."""

from __future__ import annotations

import signal

import pytest

from helpers import START_METHODS, Program, run_program


@pytest.mark.parametrize("method", START_METHODS)
@pytest.mark.parametrize(
    "through_stdin", [pytest.param(False, marks=pytest.mark.long), True], ids=["script", "python -"]
)
def test_f7_a_function_of_main_is_run(method: str, through_stdin: bool) -> None:
    """In a script, and where there is no file to import it from."""
    said = run_program("spawn_in_main.py", method, "finish", through_stdin=through_stdin).splitlines()
    assert sorted(said[:2]) == ["finished 0", "finished 1"]
    assert said[2:] == ["main ends"]


@pytest.mark.long
def test_ranks_that_nobody_joined_are_waited_for_at_exit() -> None:
    """As multiprocessing does with processes that are no daemons."""
    said = run_program("spawn_in_main.py", "fork", "leave").splitlines()
    assert said[0] == "main ends"
    assert sorted(said[1:]) == ["finished 0", "finished 1"]


@pytest.mark.long
def test_daemons_that_nobody_joined_are_ended_at_exit() -> None:
    assert run_program("spawn_in_main.py", "fork", "leave-daemon").splitlines()[-1] == "main ends"


@pytest.mark.parametrize("what", ["stay", "deaf"])
@pytest.mark.parametrize("method", [*START_METHODS, "portable"])
def test_f8_nothing_is_left_after_the_main_process_is_killed(method: str, what: str) -> None:
    """Neither the ranks, one of them deaf to every signal, nor what they have started."""
    with Program("spawn_in_main.py", method, what) as program:
        program.wait_for_lines("ready", 2)
        program.process.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        program.wait_until_nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize("what", ["stay", "deaf"])
@pytest.mark.parametrize("to", ["group", "main"])
def test_an_interrupt_ends_everything(to: str, what: str) -> None:
    """Ctrl-C, which all processes get, or SIGINT to the main process alone."""
    with Program("spawn_in_main.py", "fork", what) as program:
        program.wait_for_lines("ready", 2)
        if to == "group":
            program.signal_group(signal.SIGINT)
        else:
            program.process.send_signal(signal.SIGINT)
        assert program.wait() == -signal.SIGINT
        program.wait_until_nothing_is_left()
        assert program.stderr.count("KeyboardInterrupt") == 1, program.stderr
