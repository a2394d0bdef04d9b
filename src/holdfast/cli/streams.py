"""stdout and stderr that are closed, or take no more: a command says so in one line, and never with a traceback.

The reader of a pipe who has seen enough, as `head` has, is no error, and nothing is said: click and rich see to that.

Runs in: main process.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

_STDERR = 2
_WRONG_USAGE = 2


def check() -> None:
    """Before a command runs. In the place of a closed stream, the next file that is opened would be printed to."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:  # it gets the lowest number that is free
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = open(_STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        end_without_stdout("it is closed")


def is_stdout_lost() -> bool:
    """Whether that was it, when something could not be written: it does not take a newline either."""
    if sys.stdout is None:  # of `holdfast run`, for which it may be closed
        return False
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what it still holds: else Python says it, too
        return True
    return False


def end_without_stdout(why: str) -> NoReturn:
    """Neither healthy nor a problem found: who reads the status must not take it for one of these."""
    click.echo(f"Error: stdout cannot be written: {why}.", err=True)
    sys.exit(_WRONG_USAGE)
