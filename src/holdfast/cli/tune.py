"""`holdfast tune MODULE:DATASET`: measure samples and workers for a minute, and propose a loader's arguments.

Data (the figures, or JSON) goes to stdout, progress and talk to stderr. Exit status 1: samples failed, or nothing could
be measured. 130: interrupted, with what was known by then.

Runs in: main process.
"""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from holdfast import options
from holdfast.cli import aside, console, targets, tune_svg, tune_text
from holdfast.cli.console import HEALTHY, PROBLEMS
from holdfast.cli.tune_progress import TuneProgress

if TYPE_CHECKING:
    from holdfast.tasks.tune.facts import Setting
    from holdfast.tasks.tune.session import Outcome

_INTERRUPTED = 128 + signal.SIGINT
"""As shells have it."""


@click.command()
@click.argument("target", metavar=targets.FORM)
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Samples in a batch.")
@click.option(
    "--step-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="What one training step takes: workers are proposed that feed it, and no more.",
)
@click.option(
    "--seconds", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help="What all of it may take."
)
@click.option(
    "--max-workers", type=click.IntRange(1, 512), metavar="N", help="The most to try.  [default: twice the CPUs]"
)
@click.option(
    "--start-method",
    type=click.Choice(["fork", "spawn", "forkserver"]),
    help="How workers are started.  [default: the platform's]",
)
@click.option("--collate", metavar="MODULE:FN", help="A collate_fn of your own.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Write the curve as a picture, too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def tune(
    *,
    target: str,
    batch_size: int,
    step_seconds: float | None,
    seconds: float,
    max_workers: int | None,
    start_method: str | None,
    collate: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure a dataset, and propose num_workers, prefetch_factor, memory limits and sample_timeout.

    MODULE:DATASET is a dataset, or a function without arguments that makes one: my_project.data:train_set, or
    data.py:make_train_set.

    Samples are timed and weighed in one worker that may crash, then batches are counted with 1, 2, 4, ... workers.
    Interrupt it at any time: what is known by then is printed.
    """
    if options.is_disabled():
        raise click.UsageError(f"{options.DISABLE} is set: there would be torch's loader only. Unset it to measure.")
    _check_plot(plot)
    from holdfast.tasks.tune.facts import Setting

    setting = Setting(batch_size, step_seconds, start_method, collate)
    try:
        with aside.prints_go_to_stderr():
            outcome = _measure(target, setting, seconds, max_workers)
    except KeyboardInterrupt:  # before the first sample
        sys.exit(_INTERRUPTED)
    _tell(target, setting, outcome, plot, as_json=as_json)
    sys.exit(_status(outcome))


def _check_plot(plot: Path | None) -> None:
    """Before a minute is spent."""
    if plot is not None and not plot.parent.is_dir():
        raise click.UsageError(f"--plot {plot} cannot be written: there is no folder {plot.parent}.")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise click.UsageError(f"--plot writes SVG: call it {plot.with_suffix('.svg').name}, and not {plot.name}.")


def _measure(target: str, setting: Setting, seconds: float, max_workers: int | None) -> Outcome:
    dataset = targets.load_dataset(target)
    collate = targets.load_function(setting.collate) if setting.collate is not None else None
    from holdfast.tasks.tune.session import Refused, Request, run

    talk = console.talk()
    talk.print(Text(f"Measuring {target} ({type(dataset).__name__}) for about {seconds:g} s."), soft_wrap=True)
    with TuneProgress(talk, seconds) as progress:
        try:
            return run(dataset, collate, Request(setting, seconds, max_workers), progress)
        except Refused as refused:
            raise click.UsageError(f"{target} cannot be measured: {refused}") from None


def _tell(target: str, setting: Setting, outcome: Outcome, plot: Path | None, *, as_json: bool) -> None:
    talk = console.talk()
    if plot is not None and outcome.proposal is not None:
        _write(plot, tune_svg.drawn(target, setting, outcome))
    if as_json:
        console.print_json(tune_text.as_data(target, setting, outcome))
        return
    tune_text.print_outcome(console.out(), target, setting, outcome)
    if plot is not None and outcome.proposal is not None:
        talk.print(Text(f"The curve is in {plot}."), soft_wrap=True)
    _name_next(target, setting, outcome)


def _write(plot: Path, drawing: str) -> None:
    try:
        plot.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--plot {plot} cannot be written: {error.strerror}.") from error


def _status(outcome: Outcome) -> int:
    if outcome.is_interrupted:
        return _INTERRUPTED
    return PROBLEMS if outcome.failed or outcome.problem or outcome.proposal is None else HEALTHY


def _name_next(target: str, setting: Setting, outcome: Outcome) -> None:
    scan = ("scan", (), "loads every sample once, and lists all that fail")
    bench = ("bench", _bench_options(setting, outcome), "compares torch's loader with this one on your data")
    doctor = ("doctor", (), "looks for what is wrong with the dataset or this machine")
    wanted: tuple[str, tuple[str, ...], str] = bench
    if outcome.failed or outcome.problem:
        wanted = doctor if outcome.problem and not outcome.failed and outcome.proposal is None else scan
    command, more, why = wanted
    console.name_next(console.talk(), shlex.join(["holdfast", command, target, *more]), why)


def _bench_options(setting: Setting, outcome: Outcome) -> tuple[str, ...]:
    """The same loader as was measured."""
    given = {
        "--workers": outcome.proposal.workers if outcome.proposal is not None else None,
        "--batch-size": setting.batch_size,
        "--start-method": setting.start_method,
        "--collate": setting.collate,
    }
    return tuple(word for name, value in given.items() if value is not None for word in (name, str(value)))
