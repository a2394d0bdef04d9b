"""`holdfast demo`: an epoch with bad samples through torch's loader and ours, then both loaders at full speed.

    torch's epochs (bars) ──► ours (live view; its record is kept) ──► tables ──► speed ──► report, what to try next

Data (the tables, or JSON) goes to stdout, progress to stderr. Exit status 1: our epoch was not whole, or a batch of
ours differs from torch's.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from holdfast import options, report
from holdfast.cli import console
from holdfast.cli.demo_tables import print_faults, print_intro, print_no_speed, print_speed, print_summary
from holdfast.cli.demo_view import shown
from holdfast.errors import HoldfastError
from holdfast.records import reader

if TYPE_CHECKING:
    from holdfast.demo.outcomes import FaultsResult, OurOutcome, Outcome
    from holdfast.demo.speed import SpeedResult

STOCK_LIMIT_S = 40.0
"""Past this, torch's epochs are ended by us: the demo never hangs."""
_WIDE = 60


@dataclass(frozen=True, slots=True)
class Scale:
    """How much the demo does."""

    timeout_s: float
    """torch's `timeout`: without one it waits for ever for the sample that hangs."""
    sample_timeout_s: float
    each_alone: bool
    """Whether torch also runs an epoch for each bad sample, with no other in it."""
    rounds: int


FULL = Scale(timeout_s=2.0, sample_timeout_s=1.0, each_alone=True, rounds=3)
QUICK = Scale(timeout_s=1.0, sample_timeout_s=0.5, each_alone=False, rounds=1)


@click.command()
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Workers of each loader.")
@click.option(
    "--on-error",
    type=click.Choice(["skip", "replace"]),
    default="skip",
    show_default=True,
    help="What our loader does about a sample that cannot be loaded.",
)
@click.option(
    "--batches", type=click.IntRange(2), default=40, show_default=True, help="Batches in an epoch of the speed part."
)
@click.option("--quick", is_flag=True, help="Fewer epochs, and shorter time limits.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def demo(workers: int, on_error: Literal["skip", "replace"], batches: int, quick: bool, as_json: bool) -> None:
    """Run an epoch with five bad samples through torch's loader and ours.

    One sample raises, one segfaults, one hangs, one exits and one is killed. Then both loaders run the same work
    without faults: the batches are compared, and timed. Our epoch is shown while it runs, and is a run like any other:
    it leaves a record and a report, whose path is printed at the end.
    """
    if options.is_disabled():
        raise click.UsageError(f"{options.DISABLE} is set: there would be torch's loader only. Unset it for the demo.")
    scale = QUICK if quick else FULL
    talk, out = console.talk(), console.out()
    if not as_json:
        print_intro(out, workers)
    faults = run_faults(talk, workers, on_error, scale)
    if not as_json:
        print_faults(out, faults, scale.timeout_s)
    speed = run_speed(talk, workers, batches, scale)
    page = _write_report(faults.holdfast.run_id)
    if as_json:
        console.print_json(as_data(faults, speed, page))
    else:
        if speed.torch_failed is None:
            print_speed(out, speed, workers, scale.rounds)
        else:
            print_no_speed(out, speed.torch_failed)
        print_summary(out, faults, speed, page)
        _name_next(talk, faults.holdfast)
    differs = speed.torch_failed is None and speed.equal < speed.batches
    sys.exit(console.PROBLEMS if faults.holdfast.problems or differs else console.HEALTHY)


def _write_report(run_id: str | None) -> Path | None:
    """The page of our epoch. None where it has no record, or there is no place for the page."""
    found = reader.find(run_id) if run_id is not None else []
    try:
        return report.write(found[0]) if found else None
    except OSError:
        return None


def _name_next(talk: Console, ours: OurOutcome) -> None:
    crashed = next((event for event in ours.events if "segmentation" in event.happened and event.id), None)
    if ours.run_id is not None:
        console.name_next(talk, f"holdfast report {ours.run_id}", "the whole epoch on one page")
    if crashed is not None:
        console.name_next(talk, f"holdfast replay {crashed.id}", f"load sample {crashed.sample} alone, and look closer")
    console.name_next(talk, "holdfast doctor", "what on this machine would kill a loader")


def _progress(talk: Console, auto_refresh: bool = True) -> Progress:
    columns: list[ProgressColumn] = [TextColumn("{task.description:<28}"), MofNCompleteColumn()]
    if talk.width >= _WIDE:
        columns[1:1] = [BarColumn()]
        columns += [TimeElapsedColumn()]
    # Where it is not a terminal, rich would print the last state of the bars: nobody wants that in a log.
    return Progress(*columns, console=talk, auto_refresh=auto_refresh, transient=True, disable=not talk.is_terminal)


def run_faults(talk: Console, workers: int, on_error: Literal["skip", "replace"], scale: Scale) -> FaultsResult:
    """Run the epochs with bad samples, torch's first."""
    from holdfast.demo import ours, stock
    from holdfast.demo.faults import BATCHES, FAULTS
    from holdfast.demo.outcomes import FaultsResult

    names = [fault.name for fault in FAULTS]
    epochs = [names, *([name] for name in names if scale.each_alone)]
    with _progress(talk) as progress:
        bars = [progress.add_task(f"torch: {_title(epoch)}", total=BATCHES, start=False) for epoch in epochs]

        def advance(number: int, outcome: Outcome) -> None:
            progress.start_task(bars[number])
            progress.update(bars[number], completed=outcome.batches)

        torchs = stock.run_epochs(epochs, workers, scale.timeout_s, STOCK_LIMIT_S, advance)
    with shown(talk, BATCHES) as view:
        holdfasts = ours.run_epoch(workers, on_error, scale.sample_timeout_s, view.begin, view.count)
    alone = {epoch[0]: outcome for epoch, outcome in zip(epochs[1:], torchs[1:], strict=True)}
    return FaultsResult(torchs[0], alone, holdfasts)


def _title(names: list[str]) -> str:
    return f"one sample {names[0]}" if len(names) == 1 else f"{len(names)} bad samples"


def run_speed(talk: Console, workers: int, batches: int, scale: Scale) -> SpeedResult:
    """Compare the batches of both loaders; if they are equal, time them."""
    from holdfast.demo.speed import SpeedResult
    from holdfast.demo.stock import in_words

    try:
        return _compare_and_time(talk, workers, batches, scale)
    except HoldfastError:
        raise
    except RuntimeError as error:  # torch tells of a dead worker by a signal handler, wherever this process is
        return SpeedResult(batches, 0, {}, in_words(error))


def _compare_and_time(talk: Console, workers: int, batches: int, scale: Scale) -> SpeedResult:
    from holdfast.demo.speed import SpeedResult, count_equal, loader_makers, medians, timed_rounds

    makers = loader_makers(workers, batches)
    with _progress(talk) as progress:
        bars = {name: progress.add_task(f"comparing: {name}", total=batches) for name in makers}
        equal, compared = count_equal(makers, lambda name: progress.advance(bars[name]))
    if equal < compared:
        return SpeedResult(compared, equal, {})
    # The bars move between the timed epochs only: drawing them takes time of the thread that is measured.
    with _progress(talk, auto_refresh=False) as progress:
        bars = {name: progress.add_task(f"timing: {name}", total=scale.rounds) for name in makers}
        timings = timed_rounds(makers, scale.rounds, lambda name: progress.update(bars[name], advance=1, refresh=True))
    return SpeedResult(compared, equal, medians(timings))


def as_data(faults: FaultsResult, speed: SpeedResult, page: Path | None) -> dict[str, Any]:
    """Everything that was measured, as `docs/schemas/demo.json` says."""
    from holdfast.demo.faults import BATCHES, FAULTS, SAMPLES

    ours = faults.holdfast
    return {
        "whole": not ours.problems,
        "run": ours.run_id,
        "report": None if page is None else str(page),
        "faults": {
            "samples": SAMPLES,
            "batches": BATCHES,
            "bad": [dataclasses.asdict(fault) for fault in FAULTS],
            "torch": _epoch_data(faults.torch),
            "torch_alone": {name: _epoch_data(outcome) for name, outcome in faults.torch_alone.items()},
            "holdfast": {
                **_epoch_data(ours.epoch),
                "incidents": [dataclasses.asdict(event) for event in ours.events],
                "skipped": [dataclasses.asdict(one) for one in ours.passed_over],
                "problems": ours.problems,
            },
        },
        "speed": {**dataclasses.asdict(speed), "ratio": speed.ratio},
    }


def _epoch_data(outcome: Outcome) -> dict[str, Any]:
    return {
        "batches": outcome.batches,
        "samples": outcome.samples,
        "ended": outcome.ended,
        "seconds": outcome.seconds,
    }
