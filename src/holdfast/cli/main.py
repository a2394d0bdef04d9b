"""`holdfast`: the group of all commands.

A command's module is imported when the command is run, or its help is asked for: what one of them needs, and may be
missing or broken, is no matter to the others. What holds for all of them is here: an stdout that cannot be written, and
words of others in what a command refuses.

Runs in: main process.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

import holdfast
from holdfast.cli import streams
from holdfast.diagnosis.wording import printable

_COMMANDS = ("demo", "doctor", "scan", "run", "top", "report", "replay", "tune", "bench")
"""Each is the function of that name in the module of that name."""


class _Commands(click.Group):
    """In the order of the list above, which is the order in which a new user meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"holdfast.cli.{cmd_name}"), cmd_name)
        return command

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not streams.is_stdout_lost():
                raise
            streams.end_without_stdout(error.strerror or str(error))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # it may quote a record, or an exception of the user's
            raise click.UsageError(printable(error.format_message()), error.ctx) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
@click.pass_context
def main(context: click.Context) -> None:
    """A PyTorch data loader that survives its workers."""
    if context.invoked_subcommand != "run":  # the streams of a script are its own, and as they were
        streams.check()
