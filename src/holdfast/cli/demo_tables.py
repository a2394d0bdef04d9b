"""What `holdfast demo` prints: the figures as tables.

Runs in: main process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from holdfast.words import plural

if TYPE_CHECKING:
    from holdfast.demo.outcomes import FaultsResult, OurOutcome, Outcome
    from holdfast.demo.speed import SpeedResult


def print_intro(console: Console, workers: int) -> None:
    """Print what is going to happen: it takes half a minute."""
    from holdfast.demo.faults import BATCHES, FAULTS, SAMPLES

    bad = ", ".join(f"{fault.sample} {fault.name}" for fault in FAULTS)
    console.print(f"An epoch of {SAMPLES} samples in {BATCHES} batches, {plural(workers, 'worker')}. Sample {bad}.")
    console.print("First torch's loader, then ours, then both at full speed: under a minute.")


def print_faults(console: Console, result: FaultsResult, timeout_s: float) -> None:
    """Print how both loaders fared, and what ours did about each bad sample."""
    console.print(_epochs_table(result))
    console.print(_events_table(result.holdfast))
    if result.torch_alone:
        console.print(_alone_table(result, timeout_s))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _epochs_table(result: FaultsResult) -> Table:
    from holdfast.demo.faults import BATCHES, SAMPLES

    ours = result.holdfast
    table = _table("the same epoch", "torch", "holdfast")
    epochs = (result.torch, ours.epoch)
    table.add_row("batches", *(f"{epoch.batches} of {BATCHES}" for epoch in epochs))
    table.add_row("samples", *(f"{epoch.samples} of {SAMPLES}" for epoch in epochs))
    table.add_row("left out, and listed", "", _passed_over(ours))
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
    """The last line of an error: of torch's the one that says most, or that of the dataset's own traceback."""
    return escape(outcome.ended.splitlines()[-1])


def _events_table(ours: OurOutcome) -> Table:
    table = _table("sample", "what happened under holdfast", "what was done")
    for event in ours.events:
        sample = "" if event.sample is None else str(event.sample)
        table.add_row(sample, escape(event.happened), escape(event.done))
    return table


def _alone_table(result: FaultsResult, timeout_s: float) -> Table:
    from holdfast.demo.faults import BATCHES

    table = _table("a sample that", "torch, with no other bad one", "batches")
    for name, outcome in result.torch_alone.items():
        note = f" (timeout={timeout_s:g}; by default it waits for ever)" if name == "hangs" else ""
        table.add_row(name, f"[red]{_message(outcome)}[/red]{note}", f"{outcome.batches} of {BATCHES}")
    return table


def print_speed(console: Console, result: SpeedResult, workers: int, rounds: int) -> None:
    """Print whether the batches are equal, and how fast they come."""
    from holdfast.demo.speed import FEW_BATCHES, WORK

    console.print(f"Now without faults: {result.batches} {WORK}, {plural(workers, 'worker')}.")
    if result.equal < result.batches:
        console.print(f"{result.batches - result.equal} of {result.batches} batches differ", style="bold red")
        return
    console.print(f"All {result.equal} batches are equal: same order, same random crops, same values.", style="green")
    console.print(_speed_table(result))
    medians = f"Medians of {rounds} epochs each, in turn" if rounds > 1 else "One epoch each"
    console.print(f"{medians}; the rate counts from the first batch to the last.")
    if result.ratio is None:
        few = f"{result.batches} batches are too few to compare rates: try --batches {FEW_BATCHES} or more."
        console.print(few, style="yellow")


def _speed_table(result: SpeedResult) -> Table:
    stock, ours = result.medians["torch"], result.medians["holdfast"]
    table = _table("", "torch", "holdfast", "ratio")
    rates = (stock.batches_per_s, ours.batches_per_s)
    ratio = "" if result.ratio is None else f"{result.ratio:.1f}x"
    table.add_row("batches per second", *(f"{rate:.1f}" for rate in rates), ratio)
    firsts = (stock.first_batch_s, ours.first_batch_s)
    table.add_row("first batch after", *(f"{first:.2f} s" for first in firsts), f"{firsts[1] / firsts[0]:.2f}x")
    return table


def print_no_speed(console: Console, torch_failed: str) -> None:
    """Print why there is nothing to compare with."""
    from holdfast.demo.speed import WORK

    console.print(f"Now without faults: {WORK}. torch's loader could not do it here:")
    console.print(Text(torch_failed.splitlines()[-1], style="red"), soft_wrap=True)


def print_summary(console: Console, faults: FaultsResult, speed: SpeedResult, page: Path | None) -> None:
    """Print all of it in a few lines: the last thing that is read, and on a small terminal the only one."""
    from holdfast.demo.faults import BATCHES

    ours = faults.holdfast
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold")
    rows.add_row("torch", f"[red]stopped at the first bad sample: {faults.torch.batches} of {BATCHES} batches[/red]")
    rows.add_row("holdfast", _in_short(ours))
    if speed.ratio is not None:
        rows.add_row("speed", f"{speed.ratio:.1f} times as many batches per second as torch, and the same batches")
    console.print()
    console.print(rows)
    if page is not None:  # not folded: it is to be copied, or clicked on
        console.print(Text.assemble(("report    ", "bold"), str(page)), soft_wrap=True)


def _in_short(ours: OurOutcome) -> str:
    from holdfast.demo.faults import BATCHES

    if ours.problems:
        return f"[bold red]{escape(ours.problems[0])}[/bold red]"
    listed = f"{len(ours.passed_over)} bad samples listed, {len(ours.events)} incidents explained"
    return f"[green]all {BATCHES} batches: {listed}[/green]"
