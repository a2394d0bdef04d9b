"""The runs there are, newest first: `holdfast report --list`.

Runs in: main process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from holdfast import words
from holdfast.cli.console import name_next, out, print_json, talk
from holdfast.cli.runs import NONE_YET
from holdfast.records import reader
from holdfast.records.reader import Run
from holdfast.report import clean, entries
from holdfast.report.findings import outcome_of
from holdfast.report.nouns import front_of
from holdfast.report.span import span_of


@dataclass(frozen=True, slots=True)
class Listed:
    """One run in a line."""

    run: str
    started: float | None
    took_s: float
    what: str
    outcome: str
    incidents: int
    skipped: int


def print_runs(as_json: bool) -> None:
    """On stdout; where there is none, that is said."""
    runs = [_listed(run) for run in reader.all_runs()]
    if as_json:
        print_json({"runs": [asdict(run) for run in runs]})
        return
    if not runs:
        talk().print(f"There is no run yet. {NONE_YET}")
        return
    out().print(_table(runs))
    name_next(talk(), f"holdfast report {runs[0].run}", "what happened in the last one, and what to do")


def _listed(run: Run) -> Listed:
    span = span_of(run)
    front = front_of(run.start)
    of = entries.text(run.start, "dataset", 60) or entries.text(run.start, "function", 60)
    return Listed(
        run=clean.line(run.id, 40),
        started=span.started,
        took_s=span.duration_s,
        what=f"{front}({of})" if of else front,
        outcome=outcome_of(run),
        incidents=max(len(run.incidents), entries.count(run.last_counts, "incidents")),
        skipped=max(len(run.skipped), entries.count(run.last_counts, "skipped")),
    )


def _table(runs: list[Listed]) -> Table:
    table = Table("run", "began (UTC)", "took", "what", "outcome", box=None, pad_edge=False, header_style="dim")
    table.add_column("incidents", justify="right")
    table.add_column("skipped", justify="right")
    for run in runs:
        style = "" if run.outcome in ("finished", "running") and not run.incidents else "red"
        cells = (run.run, words.short_moment(run.started), words.duration(run.took_s), run.what, run.outcome)
        numbers = (f"{run.incidents:,}", f"{run.skipped:,}")
        table.add_row(*(Text(cell) for cell in cells), *(Text(number, style) for number in numbers))
    return table
