"""`holdfast bench MODULE:DATASET`: torch's loader and ours over the user's own data, side by side.

Same arguments, same seeds, in turn; the figures are medians. Exit status 1: ours was slower, a batch of ours differs
from torch's, or batches could not be loaded.

Runs in: main process; each loader in a child process of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast import options
from holdfast.cli import bench_text, children
from holdfast.cli.console import HEALTHY, PROBLEMS, name_next, out, print_json, talk
from holdfast.cli.targets import FORM, split

if TYPE_CHECKING:
    from holdfast.tasks.bench.match import Plan
    from holdfast.tasks.bench.opponent import Opponent
    from holdfast.tasks.bench.results import Cell

_ABOUT_S = 40.0
"""What all timed rounds take together, unless `--seconds` says otherwise."""
_MOST_WORKERS = 64


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """ "0,2,4": each once, in that order."""
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and int(part) <= _MOST_WORKERS for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of numbers up to {_MOST_WORKERS}, as in 0,2,4.")
    return tuple(dict.fromkeys(int(part) for part in parts))


@click.command()
@click.argument("target", metavar=FORM)
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Samples in a batch.")
@click.option(
    "--workers",
    callback=_numbers,
    metavar="LIST",
    default="0,2,4",
    show_default=True,
    help="Numbers of workers to try.",
)
@click.option("--seconds", type=click.FloatRange(0.1), help="For each number of workers; by default about 40 in all.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Turns of each loader.")
@click.option("--shuffle", is_flag=True, help="In random order, the same for both.")
@click.option("--drop-last", is_flag=True, help="Without the last batch where it is smaller.")
@click.option("--collate", metavar="MODULE:FN", help="A collate_fn of your own.")
@click.option("--start-method", type=click.Choice(["fork", "spawn", "forkserver"]), help="How workers are started.")
@click.option(
    "--sample-timeout", type=click.FloatRange(min=0, min_open=True), help="Of holdfast: seconds a sample may take."
)
@click.option(
    "--limit", type=click.FloatRange(1), default=30, show_default=True, help="Seconds without an answer: it hangs."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def bench(
    *,
    target: str,
    batch_size: int,
    workers: tuple[int, ...],
    seconds: float | None,
    rounds: int,
    shuffle: bool,
    drop_last: bool,
    collate: str | None,
    start_method: str | None,
    sample_timeout: float | None,
    limit: float,
    as_json: bool,
) -> None:
    """Run torch's loader and holdfast's over your own dataset, side by side.

    DATASET is a dataset, or a function without arguments that makes one. Each loader has a process of its own, which
    makes its own dataset.
    """
    from holdfast.tasks.bench import match

    if options.is_disabled():
        raise click.UsageError(f"{options.DISABLE} is set: there would be torch's loader only. Unset it to compare.")
    split(target)
    round_s = (seconds or _ABOUT_S / len(workers)) / (2 * rounds)
    plan = match.Plan(workers, rounds, round_s, limit, ends_hung_samples=sample_timeout is not None)
    arguments = {
        "batch_size": batch_size,
        "shuffle": shuffle or None,
        "drop_last": drop_last,
        "start_method": start_method,
        "sample_timeout": sample_timeout,
    }
    facts, cells = _run(plan, target, collate, arguments)
    setting = bench_text.Setting(target, arguments, plan, facts)
    if as_json:
        print_json(bench_text.data(setting, cells))
    else:
        bench_text.print_cells(out(), setting, cells)
        name_next(talk(), *bench_text.next_command(target, cells))
    sys.exit(PROBLEMS if any(cell.problems for cell in cells) else HEALTHY)


def _run(plan: Plan, target: str, collate: str | None, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Cell]]:
    from holdfast.tasks.bench import match
    from holdfast.tasks.bench.opponent import LostError, NotPlayableError

    with _opponents(target, collate, arguments) as opponents, _progress() as progress:
        bar = progress.add_task("starting both", total=plan.steps)
        progress.refresh()
        begun = iter(range(plan.steps))

        def tell(what: str) -> None:
            # Only between measurements: drawing takes time of a machine that is measured.
            progress.update(bar, description=what, completed=next(begun, plan.steps), refresh=True)

        try:
            cells = match.Match(plan, opponents, tell).run()
        except NotPlayableError as error:
            raise click.UsageError(str(error)) from None
        except LostError as error:
            raise click.ClickException(
                f"{target} cannot be made: {error}. holdfast doctor {shlex.quote(target)} looks into it."
            ) from None
        return next(iter(opponents.values())).dataset, cells


@contextmanager
def _opponents(target: str, collate: str | None, arguments: dict[str, Any]) -> Iterator[dict[str, Opponent]]:
    """Both loaders, which end with the block. No record is kept: these are no runs of the user's.

    Sets have one order in both: datasets number their classes by it.
    """
    from holdfast.tasks.bench.opponent import Opponent
    from holdfast.tasks.bench.results import LOADERS

    environment = {"PYTHONHASHSEED": "0", **os.environ, options.HOME: os.devnull}
    orders = [collate or "", json.dumps(arguments)]
    command = children.command("bench", target)
    opponents = {name: Opponent([*command, name, *orders], environment) for name in LOADERS}
    try:
        yield opponents
    finally:
        for opponent in opponents.values():
            opponent.close()


def _progress() -> Progress:
    console = talk()
    columns = (TextColumn("{task.description:<30}"), BarColumn(bar_width=24), TimeElapsedColumn())
    return Progress(*columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal)
