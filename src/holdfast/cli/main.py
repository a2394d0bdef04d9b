"""`holdfast`: the group of all commands.

Runs in: main process.
"""

from __future__ import annotations

import click

import holdfast
from holdfast.cli.demo import demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(holdfast.__version__, prog_name="holdfast")
def main() -> None:
    """A PyTorch data loader that survives its workers."""


main.add_command(demo)
