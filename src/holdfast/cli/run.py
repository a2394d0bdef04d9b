"""`holdfast run`: a training script that nobody changed, with torch's DataLoader replaced by ours.

Everything is checked before anything runs; then this process becomes `python SCRIPT` (see `tasks/runner`), and ends as
that does. Exit status 2 is of wrong usage, as everywhere.

Runs in: main process, before the script.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli import targets
from holdfast.tasks.runner import loader_options, programs, starting, table
from holdfast.tasks.runner.settings import Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
_EPILOG = """Options come before SCRIPT; everything after it belongs to the script. An option that is not given is taken
from the [tool.holdfast] table of the nearest pyproject.toml, from the script's directory upward."""


def _option(flag: str, metavar: str, text: str) -> Callable[[_Function], _Function]:
    """An option of loaders. Its value is checked by the name of the argument."""

    def check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else loader_options.parse(str(parameter.name), value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return click.option(flag, metavar=metavar, callback=check, help=text)


@click.command(context_settings={"allow_interspersed_args": False}, epilog=_EPILOG)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module, as with python -m.")
@click.option("--on-error", type=click.Choice(loader_options.ON_ERROR), help="What to do about a sample that fails.")
@_option("--max-retries", "N", "Further attempts at a sample whose worker died or hung.")
@_option("--retry-on", "NAMES", "Exceptions worth another attempt, such as OSError,TimeoutError.")
@_option("--max-skipped", "N|SHARE|auto|none", "Stop past so many skipped samples of an epoch, or that share of it.")
@_option("--max-restarts", "N", "Deaths of a worker within a minute that are nobody's sample.")
@_option("--sample-timeout", "SECONDS", "How long one sample may take.")
@_option("--memory-limit", "SIZE", "What one worker may take beyond its start, such as 4GB.")
@_option("--memory-budget", "SIZE|SHARE", "What workers and batches may take together, such as 16GB or 80%.")
@_option("--recycle-after", "N", "Replace a worker after so many batches.")
@_option("--skipped-file", "FILE", "Where bad samples of a dataset are remembered between runs.")
@click.option("--rng", type=click.Choice(loader_options.RNG), help="What random numbers in workers depend on.")
@click.option("--record/--no-record", default=None, help="Whether to keep a record of the run on disk. Default: yes.")
@click.option("--dataset", metavar=targets.FORM, help="Remembered, so that 'holdfast replay' finds the dataset.")
@click.option("--config", type=_PATH, metavar="FILE", help="A file with a [tool.holdfast] table, and no other.")
@click.option("--json", "json_file", type=_PATH, metavar="FILE", help="Write the summary there, as JSON.")
@click.option("--quiet/--no-quiet", default=None, help="Print no summary at the end.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def run(
    command: tuple[str, ...], *, as_module: bool, config: Path | None, json_file: Path | None, **flags: Any
) -> None:
    """Run a training script nobody changed, with torch's DataLoader replaced by holdfast's.

    It runs as under `python SCRIPT ARGS...`, and ends as it would there: same status, same signals, same tracebacks.
    A summary follows on stderr.
    """
    if not command:
        example = "-m my_project.train" if as_module else "train.py"
        raise click.UsageError(f"Name a {'module' if as_module else 'script'}, as in: holdfast run {example}")
    try:
        starting.check_python()
        directory = programs.check_module(command[0]) if as_module else programs.check_script(command[0])
        wanted = {**_table(config, directory), **{name: value for name, value in flags.items() if value is not None}}
        loader_options.check_together(wanted)
        target = wanted.pop("dataset", None)
        if target is not None:
            programs.check_target(targets.split(target)[0])
            target = targets.remembered(target)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    is_quiet = wanted.pop("quiet", False)
    settings = Settings(command[0], wanted, is_quiet=is_quiet, json_file=_json_file(json_file))
    starting.become(["-m", *command] if as_module else command, settings, target)


def _table(config: Path | None, directory: Path) -> dict[str, Any]:
    if config is not None:
        return table.read(config, is_required=True)
    nearest = table.nearest(directory)
    return {} if nearest is None else table.read(nearest)


def _json_file(file: Path | None) -> str | None:
    """Where it is now: the script may go elsewhere."""
    if file is None:
        return None
    path = file.absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise click.BadParameter(f"{file} is no file in a directory that exists", param_hint="--json")
    return str(path)
