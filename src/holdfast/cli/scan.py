"""`holdfast scan`: load every sample of a dataset once, in workers that may crash, and list the bad ones.

Data (the tables, or JSON) goes to stdout, progress and talk to stderr. Exit status 0: all samples are good. 1: bad or
odd ones were found, or the scan could not go on. 130, 143: interrupted; the same command continues.

Runs in: main process.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from holdfast import options
from holdfast.cli import aside, console, scan_tables, targets
from holdfast.cli.console import HEALTHY, PROBLEMS
from holdfast.cli.scan_progress import ScanProgress
from holdfast.tasks.scan.interrupts import Interrupted, ignore_from_now_on, interruptible

if TYPE_CHECKING:
    from holdfast.tasks.scan.outcome import Outcome
    from holdfast.tasks.scan.session import Plan

_BY_SIGNAL = 128
"""Plus the number of the signal, as shells have it: 130, 143."""


@click.command()
@click.argument("target", metavar=targets.FORM)
@click.option("--workers", type=click.IntRange(1), help="Worker processes.  [default: one per CPU; iterables: 1]")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds one sample may take.",
)
@click.option("--memory-limit", metavar="SIZE", help='What a worker may take beyond its start, such as "4GB".')
@click.option(
    "--start-method",
    type=click.Choice(["fork", "spawn", "forkserver"]),
    help="How workers are started.  [default: the platform's]",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="More attempts for a sample that cost a worker.",
)
@click.option("--sample", metavar="N", type=click.IntRange(1), help="Load only N samples, chosen at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which N samples --sample chooses.")
@click.option(
    "--skipped-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, for DataLoader(skipped_file=...).  [default: DATASET.skipped.jsonl]",
)
@click.option("--odd", is_flag=True, help="List samples of odd shape or dtype in that file, too.")
@click.option("--again", is_flag=True, help="Start over: do not continue a scan that was interrupted.")
@click.option("--all", "list_all", is_flag=True, help="Print every bad sample, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def scan(list_all: bool, as_json: bool, **given: Any) -> None:
    """Load every sample of a dataset once, and list the bad ones.

    MODULE:DATASET is a dataset, or a function without arguments that makes one: my_project.data:train_set, or
    data.py:make_train_set.

    Each sample is loaded in a worker process that may crash, hang or run out of memory without harm to the rest.
    Interrupt it at any time: the same command continues. The file it writes is for DataLoader(..., on_error="skip",
    skipped_file=...), which then does not load the bad samples.
    """
    if options.is_disabled():
        raise click.UsageError(f"{options.DISABLE} is set: there would be torch's loader only. Unset it for a scan.")
    try:
        with interruptible():
            status = _run(given, list_all=list_all, as_json=as_json)
    except Interrupted as interrupted:  # before the first sample, or after the last
        status = _BY_SIGNAL + interrupted.number
    if status > _BY_SIGNAL:
        ignore_from_now_on()
    sys.exit(status)


def _run(given: dict[str, Any], *, list_all: bool, as_json: bool) -> int:
    talk = console.talk()
    known = options.told(targets.remembered(given["target"]), "scan")  # so `holdfast replay` finds it; nobody trains
    with aside.prints_go_to_stderr(), known:
        outcome = _scan(talk, given)
    if as_json:
        console.print_json(outcome.as_data())
    else:
        scan_tables.print_outcome(console.out(), outcome, list_all=list_all)
        _say_what_next(talk, outcome)
    return _status(outcome)


def _scan(talk: Console, given: dict[str, Any]) -> Outcome:
    dataset = targets.load_dataset(given["target"])
    from holdfast.tasks.scan.session import Refused, Request, run

    request = Request(**given)

    def begin(plan: Plan) -> ScanProgress:
        talk.print(scan_tables.plan_text(plan, request.target), soft_wrap=True)
        return ScanProgress(talk, plan.planned, plan.before)

    try:
        return run(dataset, request, begin)
    except Refused as refused:
        raise click.UsageError(str(refused)) from None


def _status(outcome: Outcome) -> int:
    if outcome.signal is not None:
        return _BY_SIGNAL + outcome.signal
    return PROBLEMS if outcome.bad or outcome.odd or outcome.error else HEALTHY


def _say_what_next(talk: Console, outcome: Outcome) -> None:
    """The commands that are worth running now, of those that there are."""
    if outcome.error:
        _name(talk, "doctor", outcome.target, "looks for what is wrong with the dataset or this machine")
    elif not outcome.is_finished:
        same = shlex.join(["holdfast", *(each for each in sys.argv[1:] if each != "--again")])
        console.name_next(talk, same, "continues where this one stopped; --again starts over")
    elif incident := next((bad.incident for bad in outcome.bad if bad.incident), ""):
        _name(talk, "replay", incident, "loads the first bad sample alone")
        _name(talk, "report", incident.partition(".")[0], "shows all that happened, with the evidence")
    else:
        _name(talk, "tune", outcome.target, "finds out how many workers it takes")


def _name(talk: Console, command: str, argument: str, why: str) -> None:
    console.name_next(talk, shlex.join(["holdfast", command, argument]), why)
