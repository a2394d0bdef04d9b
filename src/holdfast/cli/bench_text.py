"""What `holdfast bench` prints: a row for each number of workers, and below it what went wrong.

Runs in: main process.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from holdfast.cli.lines import Lines
from holdfast.diagnosis.wording import printable
from holdfast.tasks.bench.results import FEW_BATCHES
from holdfast.words import plural, took

if TYPE_CHECKING:
    from holdfast.tasks.bench.match import Plan
    from holdfast.tasks.bench.results import Cell, Side

_TABLE_WIDTH = 76
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """What was compared, and how."""

    target: str
    arguments: dict[str, Any]
    """Of both loaders."""
    plan: Plan
    facts: dict[str, Any]
    """Of the dataset: its type, and its length where it has one."""


def print_cells(console: Console, setting: Setting, cells: list[Cell]) -> None:
    """The figures, and what they mean."""
    lines, plan = Lines(console), setting.plan
    lines.add("dataset", [_dataset(setting)])
    lines.add("rounds", [f"{plan.rounds} of {plan.round_s:.2g} s for each loader, in turn; medians"])
    if console.width >= _TABLE_WIDTH:
        console.print(_table(cells))
    else:
        _print_narrow(lines, cells)
    _print_equality(lines, cells)
    for cell in cells:
        _print_failures(lines, cell)
    if any(
        each.epoch_batches is not None and each.epoch_batches < FEW_BATCHES
        for cell in cells
        for each in cell.torch.rounds
    ):
        lines.add("note", [f"an epoch has fewer than {FEW_BATCHES} batches: the rates are rough"], "yellow")


def _dataset(setting: Setting) -> str:
    length, arguments = setting.facts.get("length"), setting.arguments
    of = "" if length is None else f" of {plural(length, 'sample')}"
    how = ["shuffled"] * bool(arguments["shuffle"]) + [arguments["start_method"] or ""]
    extras = "".join(f", {each}" for each in how if each)
    return f"{setting.target}, {setting.facts.get('dataset')}{of}; batches of {arguments['batch_size']}{extras}"


def _table(cells: list[Cell]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    heads = ("\nworkers", "batches/s\ntorch", "\nholdfast", "\nratio", "first batch\ntorch", "\nholdfast")
    for head in (*heads, "MiB/worker\ntorch", "\nholdfast"):
        table.add_column(head, justify="right", no_wrap=True)
    for cell in cells:
        sides = (cell.torch, cell.holdfast)
        memory = [_memory(side, cell.workers) for side in sides]
        table.add_row(str(cell.workers), *map(_rate, sides), _ratio(cell), *map(_first, sides), *memory)
    return table


def _print_narrow(lines: Lines, cells: list[Cell]) -> None:
    for cell in cells:
        rates = f"{_rate(cell.torch)} torch, {_rate(cell.holdfast)} holdfast: {_ratio(cell)}"
        firsts = f"first batch {_first(cell.torch)}, {_first(cell.holdfast)}"
        lines.add(_workers(cell)[:9], [f"batches/s {rates}", firsts])


def _print_equality(lines: Lines, cells: list[Cell]) -> None:
    compared, equal = sum(cell.compared for cell in cells), sum(cell.equal for cell in cells)
    if any(cell.differs for cell in cells):
        lines.add("batches", [f"{compared - equal} of {compared} differ from torch's"], "bold red")
    elif any(cell.is_random for cell in cells):
        lines.add("batches", ["not compared: the dataset gives other values each time, also to torch"], "yellow")
    elif compared:
        lines.add("batches", [f"all {compared} that were compared are equal: same order, same values"], "green")


def _print_failures(lines: Lines, cell: Cell) -> None:
    for name, side in (("torch", cell.torch), ("holdfast", cell.holdfast)):
        if side.ended:
            said = [f"with {_workers(cell)}: {side.ended}"]
        elif side.failures:
            batches = "a batch" if side.failures == 1 else plural(side.failures, "batch")
            said = [f"with {_workers(cell)}: went on past {batches} that raised", *side.first_failures]
        else:
            continue
        lines.add(name, said, "red")
    if cell.is_slower:
        how = f"holdfast with {_workers(cell)}: no round was as fast as torch's slowest"
        lines.add("slower", [how], "red")


def _workers(cell: Cell) -> str:
    return plural(cell.workers, "worker")


def _rate(side: Side) -> str:
    return "failed" if side.rate is None else f"{side.rate:.4g}" if side.rate < 1000 else f"{side.rate:.0f}"


def _first(side: Side) -> str:
    return "" if side.first_batch_s is None else took(side.first_batch_s)


def _ratio(cell: Cell) -> str:
    return "" if cell.ratio is None else f"{cell.ratio:.2f}x" if cell.ratio < 10 else f"{cell.ratio:.1f}x"


def _memory(side: Side, workers: int) -> str:
    return "" if side.memory_bytes is None or not workers else f"{side.memory_bytes / workers / _MIB:.1f}"


def next_command(target: str, cells: list[Cell]) -> tuple[str, str]:
    """The command that is worth running after this one, and why."""
    named = shlex.quote(printable(target))
    if any(side.failures or side.ended for cell in cells for side in (cell.torch, cell.holdfast)):
        return f"holdfast scan {named}", "finds every sample that cannot be loaded"
    if any(cell.problems for cell in cells):
        return f"holdfast doctor {named}", "looks for what is in the way"
    return f"holdfast tune {named}", "proposes num_workers and limits"


def data(setting: Setting, cells: list[Cell]) -> dict[str, Any]:
    """Everything that was measured, for `--json`. Its schema is docs/schemas/bench.json."""
    return {
        "dataset": setting.target,
        "type": setting.facts.get("dataset"),
        "length": setting.facts.get("length"),
        "arguments": setting.arguments | {"shuffle": bool(setting.arguments["shuffle"])},
        "rounds": setting.plan.rounds,
        "round_s": setting.plan.round_s,
        "cells": [_cell_data(cell) for cell in cells],
    }


def _cell_data(cell: Cell) -> dict[str, Any]:
    return {
        "workers": cell.workers,
        "torch": _side_data(cell.torch),
        "holdfast": _side_data(cell.holdfast),
        "ratio": cell.ratio,
        "batches_compared": cell.compared,
        "batches_equal": cell.equal,
        "is_random": cell.is_random,
        "problems": cell.problems,
    }


def _side_data(side: Side) -> dict[str, Any]:
    return {
        "batches_per_s": side.rate,
        "first_batch_s": side.first_batch_s,
        "rounds": [
            {"first_batch_s": each.first_batch_s, "batches_per_s": each.rate, "batches": each.batches}
            for each in side.rounds
        ],
        "memory_bytes": side.memory_bytes,
        "failures": side.failures,
        "first_failures": [*side.first_failures],
        "ended": side.ended,
    }
