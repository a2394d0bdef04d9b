"""`holdfast`: the group of all commands.

A command's module is imported when the command is run, or its help is asked for: what one of them needs, and may be
missing or broken, is no matter to the others.

Runs in: main process.
"""

from __future__ import annotations

import importlib

import click

import holdfast

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


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def main() -> None:
    """A PyTorch data loader that survives its workers."""
