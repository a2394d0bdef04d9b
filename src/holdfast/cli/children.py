"""A process of its own that loads the user's dataset: where it may hang or die, or a debugger is to watch it.

    python -X faulthandler -m holdfast.cli.children TASK MODULE:DATASET ...

Its exit status is the task's; 2 where there is no such dataset.

Runs in: a child process of a command.
"""

from __future__ import annotations

import json
import sys

import click

from holdfast.cli.targets import load_dataset, load_function


def command(task: str, target: str) -> list[str]:
    """How to start one, up to what the task itself is told."""
    return [sys.executable, "-X", "faulthandler", "-m", __spec__.name, task, target]


def main(task: str, target: str, *orders: str) -> int:
    """Run a task on the dataset."""
    return _bench(target, *orders) if task == "bench" else _replay(target, *orders)


def _replay(target: str, *orders: str) -> int:
    from holdfast.tasks.replay.debuggers import load_under_gdb

    try:
        dataset = load_dataset(target)
    except click.UsageError as error:
        click.echo(error.message, err=True)
        return 2
    return load_under_gdb(dataset, *orders)


def _bench(target: str, loader: str, collate: str, arguments: str) -> int:
    from holdfast.tasks.bench import play

    say = play.take_stdout()
    try:
        dataset, function = load_dataset(target), load_function(collate) if collate else None
    except click.UsageError as error:
        say({"usage": error.message})
        return 2
    play.play(dataset, function, loader, json.loads(arguments), say)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
