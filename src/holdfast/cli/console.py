"""Where commands print: data on stdout, talk on stderr, colour only on a terminal, or where FORCE_COLOR asks for it.

A table that is piped is as wide as it needs to be: nobody folds what `grep` is to read. Where the encoding is not
Unicode's, what it lacks becomes a question mark: a dataset may have any name, and no command ends for that.

Runs in: main process.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any, Literal, TextIO

import click
from rich.console import Console
from rich.text import Text

HEALTHY, PROBLEMS = 0, 1
"""Exit statuses. That of wrong usage is 2, and click's own."""

_PIPE_WIDTH = 120


def out() -> Console:
    """For data."""
    _never_fail(sys.stdout)
    console = _console(sys.stdout)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def talk() -> Console:
    """For everything else."""
    _never_fail(sys.stderr)
    return _console(sys.stderr, stderr=True)


def _console(stream: TextIO, *, stderr: bool = False) -> Console:
    """With FORCE_COLOR rich takes a pipe for a terminal: here it has colours then, and is drawn on no more than any."""
    if stream.isatty():
        return Console(stderr=stderr, highlight=False)
    colours: Literal["standard"] | None = "standard" if os.environ.get("FORCE_COLOR") else None
    return Console(stderr=stderr, highlight=False, force_terminal=False, color_system=colours)


def _never_fail(stream: TextIO) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def print_json(data: Any) -> None:
    """The whole of a command's output under `--json`."""
    click.echo(json.dumps(data, indent=1, allow_nan=False))


def name_next(console: Console, command: str, why: str) -> None:
    """The last line of a command: which one is worth running next."""
    console.print(Text.assemble(("next  ", "dim"), (command, "bold"), f"   {why}"), soft_wrap=True)
