"""What `holdfast demo` prints: the figures as tables.

Runs in: main process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from holdfast.demo.outcomes import FaultsResult, OurOutcome, Outcome
    from holdfast.demo.speed import SpeedResult

PIPE_WIDTH = 120
MESSAGE_LINES = 3


def make_console() -> Console:
    """Return a console that is wide enough for the tables when its output is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def print_faults(console: Console, result: FaultsResult, workers: int, timeout_s: float) -> None:
    """Print what the epoch was, how both loaders fared, and what ours did about each bad sample."""
    from holdfast.demo.faults import BATCHES, FAULTS, SAMPLES

    bad = ", ".join(f"{fault.sample} {fault.name}" for fault in FAULTS)
    console.print(f"An epoch of {SAMPLES} samples in {BATCHES} batches, {workers} workers. Sample {bad}.")
    console.print(_epochs_table(result))
    console.print(_events_table(result.holdfast))
    if result.torch_alone:
        console.print(_alone_table(result, timeout_s))


def _epochs_table(result: FaultsResult) -> Table:
    from holdfast.demo.faults import BATCHES, SAMPLES

    ours = result.holdfast
    table = Table("the same epoch", "torch", "holdfast", show_lines=True)
    epochs = (result.torch, ours.epoch)
    table.add_row("batches delivered", *(f"{epoch.batches} of {BATCHES}" for epoch in epochs))
    table.add_row("samples delivered", *(f"{epoch.samples} of {SAMPLES}" for epoch in epochs))
    table.add_row("passed over, and listed", "", _passed_over(ours))
    table.add_row("ended after", *(f"{epoch.seconds:.1f} s" for epoch in epochs))
    table.add_row("how it ended", f"[red]{_message(result.torch)}[/red]", _our_end(ours))
    return table


def _passed_over(ours: OurOutcome) -> str:
    replaced = {one.sample: "" if one.replaced_by is None else f" (by {one.replaced_by})" for one in ours.passed_over}
    return ", ".join(f"{sample}{by}" for sample, by in replaced.items()) or "none"


def _our_end(ours: OurOutcome) -> str:
    if ours.problems:
        return f"[bold red]{escape(chr(10).join(ours.problems))}[/bold red]"
    return "[green]whole: every sample came once and in order, or is listed[/green]"


def _message(outcome: Outcome) -> str:
    """The first lines of an error, as torch words it, and the last one: that of the dataset's own traceback."""
    lines = outcome.ended.splitlines()
    shown = lines if len(lines) <= MESSAGE_LINES else [*lines[: MESSAGE_LINES - 1], "...", lines[-1]]
    return escape("\n".join(shown))


def _events_table(ours: OurOutcome) -> Table:
    table = Table("sample", "what happened under holdfast", "what was done")
    for event in ours.events:
        sample = "" if event.sample is None else str(event.sample)
        table.add_row(sample, escape(event.happened), escape(event.done))
    return table


def _alone_table(result: FaultsResult, timeout_s: float) -> Table:
    from holdfast.demo.faults import BATCHES

    title = "torch, one bad sample at a time"
    table = Table(title, "batches", "how it ended", show_lines=True)
    for name, outcome in result.torch_alone.items():
        note = f" (timeout={timeout_s:g}; by default it waits for ever)" if name == "hangs" else ""
        table.add_row(f"{name}{note}", f"{outcome.batches} of {BATCHES}", f"[red]{_message(outcome)}[/red]")
    return table


def print_speed(console: Console, result: SpeedResult, workers: int, rounds: int) -> None:
    """Print whether the batches are equal, and how fast they come."""
    from holdfast.demo.speed import WORK

    console.print(f"Now without faults: {result.batches} {WORK}, {workers} workers.")
    if result.equal < result.batches:
        console.print(f"{result.batches - result.equal} of {result.batches} batches differ", style="bold red")
        return
    console.print(f"All {result.equal} batches are equal: same order, same random crops, same values.", style="green")
    console.print(_speed_table(result))
    console.print(f"Medians of {rounds} epochs each, in turn; the rate counts from the first batch to the last.")


def _speed_table(result: SpeedResult) -> Table:
    stock, ours = result.medians["torch"], result.medians["holdfast"]
    table = Table("", "torch", "holdfast", "ratio")
    rates = (stock.batches_per_s, ours.batches_per_s)
    table.add_row("batches per second", *(f"{rate:.1f}" for rate in rates), f"{result.ratio:.1f}x")
    firsts = (stock.first_batch_s, ours.first_batch_s)
    table.add_row("first batch after", *(f"{first:.2f} s" for first in firsts), f"{firsts[1] / firsts[0]:.2f}x")
    return table
