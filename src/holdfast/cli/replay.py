"""`holdfast replay RUN.INCIDENT`: the sample of an incident again, alone, in the foreground, under the same limits.

Exit status 0: it loads now. 1: it fails again. 2: wrong usage, or an incident that cannot be gone back to.
What the dataset prints goes to stderr, unless a debugger has the terminal.

Runs in: main process.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast import options
from holdfast.cli import children, replay_data, replay_text
from holdfast.cli.aside import prints_go_to_stderr
from holdfast.cli.console import HEALTHY, PROBLEMS, name_next, out, print_json, talk
from holdfast.cli.runs import find_run
from holdfast.cli.targets import load_dataset
from holdfast.memory import sizes
from holdfast.records.reader import Run
from holdfast.tasks.replay import case as cases
from holdfast.tasks.replay.case import CannotReplayError, Case

if TYPE_CHECKING:
    from holdfast.tasks.replay.guarded import Order


_NONE = "none"
"""In place of a limit."""


@dataclass(frozen=True, slots=True)
class Look:
    """How to look at it: in a guarded worker, or closer."""

    pdb: bool
    pdb_before: bool
    gdb: bool
    memray: bool
    as_json: bool

    @property
    def is_debugger(self) -> bool:
        return self.pdb or self.pdb_before or self.gdb

    def check(self) -> None:
        asked = [self.pdb or self.pdb_before, self.gdb, self.memray]
        if sum(asked) > 1:
            raise click.UsageError("--pdb, --gdb and --memray exclude each other: run it once with each.")
        if self.is_debugger and self.as_json:
            raise click.UsageError("--json has no place beside a debugger: leave one of them out.")


@click.command()
@click.argument("incident", metavar="[RUN[.INCIDENT]]", required=False)
@click.option("--dataset", "target", metavar="MODULE:OBJECT", help="The run's dataset, or a function that makes it.")
@click.option("--index", metavar="INDEX", help="Another sample than the incident's, under the same limits.")
@click.option("--pdb", is_flag=True, help="Load it in this process, and stop where it raises.")
@click.option("--pdb-before", is_flag=True, help="The same, and stop at the first line of __getitem__.")
@click.option("--gdb", is_flag=True, help="Load it under gdb, and stop at the signal that ends it.")
@click.option("--memray", is_flag=True, help="Note every allocation in a file that memray can draw.")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, show_default=True, help="How often, each time with another seed."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of torch's, numpy's and Python's random numbers.",
)
@click.option("--memory-limit", metavar="SIZE", help='Another limit than the run\'s: "4GB", or "none".')
@click.option("--sample-timeout", metavar="SECONDS", help='Another than the run\'s: seconds, or "none".')
@click.option("--list", "lists", is_flag=True, help="List the run's incidents, as without .INCIDENT.")
@click.option("--json", "as_json", is_flag=True, help="Print what came of it as JSON.")
def replay(
    *,
    incident: str | None,
    target: str | None,
    index: str | None,
    pdb: bool,
    pdb_before: bool,
    gdb: bool,
    memray: bool,
    repeat: int,
    seed: int,
    memory_limit: str | None,
    sample_timeout: str | None,
    lists: bool,
    as_json: bool,
) -> None:
    """Load the sample of an incident again, alone, under the limits of its run.

    7f3a.2 is the second incident of run 7f3a; 7f3a alone lists all of them, and without a run the last one is meant.
    """
    look = Look(pdb, pdb_before, gdb, memray, as_json)
    look.check()
    if options.is_disabled():
        raise click.UsageError(f"{options.DISABLE} is set: no sample would be guarded. Unset it to replay one.")
    run_id, number = _split(incident)
    run = find_run(run_id)
    if run.is_newer:
        raise click.UsageError(
            f"Run {run.id} was recorded by a newer holdfast ({run.start.get('holdfast_version')}), and its record may "
            f"mean something else. Update holdfast."
        )
    if number is None or lists:
        _list(run, as_json)
    try:
        case = _limited(cases.case_of(run, number), memory_limit, sample_timeout)
        dataset, where = _dataset(case, target)
        order = _order(case, dataset, index, repeat, seed)
        show = _debug if look.is_debugger else _guarded
        sys.exit(show(case, where, dataset, order, look))
    except CannotReplayError as error:
        raise click.UsageError(str(error)) from None


def _split(incident: str | None) -> tuple[str | None, int | None]:
    """ "7f3a.2" is run 7f3a, incident 2."""
    if incident is None or "." not in incident:
        return incident, None
    run_id, _, number = incident.rpartition(".")
    if not number.isdecimal() or not run_id:
        raise click.UsageError(f"{incident!r} is no incident: 7f3a.2 is the second of run 7f3a.")
    return run_id, int(number)


def _list(run: Run, as_json: bool) -> NoReturn:
    if as_json:
        print_json(replay_data.list_data(run))
    else:
        replay_text.print_list(out(), run)
        first = next((entry.get("number") for entry in run.incidents if entry.get("sample_index") is not None), None)
        if first is not None:
            name_next(talk(), f"holdfast replay {run.id}.{first}", "loads that sample again, alone")
    sys.exit(HEALTHY)


def _limited(case: Case, memory_limit: str | None, sample_timeout: str | None) -> Case:
    """With the limits of the command line in place of the run's, where there are any."""
    limits = case.limits
    memory = limits.memory_limit_bytes if memory_limit is None else _size(memory_limit)
    timeout = limits.sample_timeout_s if sample_timeout is None else _time(sample_timeout)
    return cases.with_limits(case, memory, timeout)


def _size(text: str) -> int | None:
    try:
        return None if text == _NONE else sizes.parse_bytes("--memory-limit", text)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def _time(text: str) -> float | None:
    try:
        seconds = None if text == _NONE else float(text)
    except ValueError:
        seconds = 0.0
    if seconds is not None and not 0 < seconds < float("inf"):
        raise click.UsageError(f"--sample-timeout {text} is not a time: give seconds, as in 2.5, or {_NONE}.")
    return seconds


def _dataset(case: Case, target: str | None) -> tuple[Any, str]:
    where = target or case.target
    if not where:
        raise click.UsageError(
            f"Which dataset run {case.id.rpartition('.')[0]} had is not in its record. Name it: --dataset "
            f"MODULE:OBJECT, a dataset or a function without arguments that returns one."
        )
    try:
        with prints_go_to_stderr():
            return load_dataset(where), where
    except click.UsageError as error:
        if target is not None:
            raise
        remembered = f"{where} is what the run was started with: try its directory, or --dataset."
        raise click.UsageError(f"{error.message} {remembered}") from None


def _order(case: Case, dataset: Any, index: str | None, repeat: int, seed: int) -> Order:
    from holdfast.tasks.replay.guarded import order_of

    chosen = () if index is None else (_literal(index),)
    return order_of(case, dataset, chosen, repeat=repeat, seed=seed)


def _literal(text: str) -> Any:
    """A number, a text in quotes, a tuple; anything else is a text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _guarded(case: Case, where: str, dataset: Any, order: Order, look: Look) -> int:
    from holdfast.tasks.replay import guarded, memory_file

    if look.memray:
        order = memory_file.ordered(order, case.id)
    console = talk()
    if not look.as_json:
        replay_text.print_case(console, case, where, order, dataset)
    with console.status("loading ...") as status, prints_go_to_stderr():
        outcome = guarded.load(dataset, order, lambda count: status.update(f"passing over elements: {count}"))
    peak_bytes = memory_file.peak_bytes(order)
    if look.as_json:
        print_json(replay_data.data(case, where, order, outcome, peak_bytes))
    else:
        replay_text.print_outcome(out(), case, order, outcome, peak_bytes)
        name_next(console, *replay_text.next_command(case, where, order, outcome))
    return HEALTHY if outcome.error is None else PROBLEMS


def _debug(case: Case, where: str, dataset: Any, order: Order, look: Look) -> int:
    from holdfast.tasks.replay import debuggers

    console = talk()
    replay_text.print_case(console, case, where, order, dataset)
    if look.gdb:
        seen = debuggers.with_gdb(children.command("replay", where), order)
    else:
        if not look.pdb_before and replay_text.is_crash(case.cause):
            console.print(
                "pdb cannot stop at a crash: it ends this process. --pdb-before and --gdb can.", style="yellow"
            )
        seen = debuggers.with_pdb(dataset, order, before=look.pdb_before)
    replay_text.print_seen(out(), order, seen)
    name_next(console, f"holdfast report {case.id.rpartition('.')[0]}", "all that is known of that run")
    return PROBLEMS if seen.parts is None else HEALTHY
