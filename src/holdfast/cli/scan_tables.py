"""What `holdfast scan` prints: what it will do, and what it found, as tables.

All words that come from a dataset, such as the text of its exceptions, are printed as they are, in one line each: they
are neither markup nor orders to the terminal.

Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.diagnosis.wording import one_line, printable
from holdfast.words import plural, seconds, size, took

if TYPE_CHECKING:
    from holdfast.tasks.scan.findings import Bad, Place
    from holdfast.tasks.scan.outcome import Outcome
    from holdfast.tasks.scan.session import Plan

K = TypeVar("K")
V = TypeVar("V")

_LISTED = 20
"""Bad samples that are listed one by one. More are put together by what happened to them."""
_NAMED = 6
"""Samples that are named of those that were put together."""
_EXTREMES = 5
_UNFOLDED = 10_000
_NARROW, _NARROWEST = 64, 40
"""Columns that a table with words in it needs, and one without."""


def plan_text(plan: Plan, target: str) -> Text:
    """What is going to be done."""
    if plan.planned is None:
        what = f"the elements of {target}"
    elif plan.planned == plan.length:
        what = f"{plural(plan.planned, 'sample')} of {target}"
    else:
        what = f"{plural(plan.planned, 'sample')} of the {plan.length:,} of {target}"
    continued = f"; {plan.before:,} of them were scanned before" if plan.before else ""
    return Text(printable(f"Scanning {what} ({plan.dataset}) with {plural(plan.workers, 'worker')}{continued}."))


def print_outcome(console: Console, outcome: Outcome, *, list_all: bool) -> None:
    """All that was found."""
    if not console.is_terminal:
        console.width = _UNFOLDED  # a row is a line, however long: it is for grep
    if outcome.error:
        console.print(Text(outcome.error, style="red"), soft_wrap=True)
    if list_all or len(outcome.bad) <= _LISTED:
        _show(console, ("bad sample", "cause", "what happened", "incident"), _bad_rows(outcome))
    else:
        _show(console, ("bad samples", "cause", "what happened, for example", "which"), _bad_groups(outcome))
    if outcome.odd:
        _show(console, ("odd samples", "how they differ", "which"), _odd_groups(outcome, list_all=list_all))
        if outcome.common:  # samples of several kinds may have nothing in common
            console.print(Text(f"Others have {one_line(', '.join(outcome.common), 300)}.\n"))
    if not outcome.error:
        _show(console, ("slowest", "took", "largest", "has"), _extremes(outcome), needs=_NARROWEST)
        if any(slow.is_first for slow in outcome.slowest[:_EXTREMES]):
            console.print(Text("* the first sample of a worker, which may have done what is done once\n", "dim"))
    console.print(_summary(outcome))
    for line in _on_file(outcome):
        console.print(Text(line), soft_wrap=line.startswith("DataLoader("))  # which is to be pasted


def _summary(outcome: Outcome) -> Text:
    done = outcome.loaded + len(outcome.bad)
    planned = None if outcome.is_finished else outcome.planned
    what = plural(done, "sample") if planned is None else f"{done:,} of {plural(planned, 'sample')}"
    verb = "scanned" if outcome.is_finished else "scanned so far"
    pace = f"{outcome.rate:,.0f} samples/s" if outcome.rate >= 10 else f"{outcome.rate:.2g} samples/s"
    how = f", in {seconds(outcome.seconds)}, {pace}; {size(outcome.nbytes)} loaded."
    retried = f" {plural(len(outcome.retried), 'sample')} came only at a second attempt." if outcome.retried else ""
    return Text.assemble(f"{what} {verb}: ", _found(outcome), how, retried)


def _found(outcome: Outcome) -> Text:
    bad, odd = len(outcome.bad), len(outcome.odd)
    if bad or odd:
        return Text(" and ".join([f"{bad:,} bad"] * bool(bad) + [f"{odd:,} odd"] * bool(odd)), "bold red")
    return Text("all good", "green") if outcome.is_finished else Text("none bad")


def _on_file(outcome: Outcome) -> Iterable[str]:
    written = outcome.written
    if written is not None:
        load_now = f"; {written.load_now:,} that it had before can be loaded now" if written.load_now else ""
        yield f"{written.path} lists {plural(len(written.entries), 'sample')}{load_now}."
        if written.entries:
            yield f'DataLoader(..., on_error="skip", skipped_file={written.path!r}) does not load them.'
        if len(outcome.odd) > sum(index in written.entries for _, index in outcome.odd):
            yield "Odd samples are not in it; with --odd they are."
    elif outcome.odd and not outcome.is_iterable and outcome.is_finished:
        yield "No skipped_file was written: all samples can be loaded. With --odd it lists the odd ones."
    elif outcome.bad and outcome.is_iterable:
        yield "No skipped_file is written of an iterable dataset: its elements have no indices."


# -- tables ------------------------------------------------------------------------------------------------------------


def _show(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], needs: int = _NARROW) -> None:
    """As a table; where there is no room for one, each row as a few lines. Nothing, if there are no rows."""
    rows = list(rows)
    if not rows:
        return
    if console.width < needs:
        console.print(Text(" / ".join(columns), "bold"))
        for first, *rest in rows:
            console.print(Text.assemble((first, "bold"), "  ", *(f"{cell}\n" for cell in rest)), overflow="fold")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _bad_rows(outcome: Outcome) -> Iterable[tuple[str, ...]]:
    for bad in outcome.bad:
        yield _index(outcome, bad.place), one_line(bad.cause), _happened(bad), bad.incident


def _bad_groups(outcome: Outcome) -> Iterable[tuple[str, ...]]:
    for (cause, _), group in _grouped((_kind(bad), bad) for bad in outcome.bad):
        which = _indices(outcome, [bad.place for bad in group])
        yield f"{len(group):,}", one_line(cause), _happened(group[0]), which


def _odd_groups(outcome: Outcome, *, list_all: bool) -> Iterable[tuple[str, ...]]:
    for words, places in _grouped((words, place) for place, words in outcome.odd.items()):
        which = _indices(outcome, places, len(places) if list_all else _NAMED)
        yield f"{len(places):,}", one_line(words, 300), which


def _extremes(outcome: Outcome) -> Iterable[tuple[str, ...]]:
    for slow, large in zip(outcome.slowest[:_EXTREMES], outcome.largest[:_EXTREMES], strict=False):
        time = f"{_duration(slow.value)}{' *' if slow.is_first else ''}"
        yield _index(outcome, slow.place), time, _index(outcome, large.place), size(int(large.value))


def _duration(value_s: float) -> str:
    """Not in microseconds: what is below each other is to be compared."""
    return took(value_s) if value_s >= 1e-3 else f"{value_s * 1e3:.2g} ms"


def _kind(bad: Bad) -> tuple[str, str]:
    """What bad samples have in common that are put together: of exceptions, their type."""
    return bad.cause, bad.summary.partition(":")[0]


def _grouped(pairs: Iterable[tuple[K, V]]) -> list[tuple[K, list[V]]]:
    """The largest group first."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _happened(bad: Bad) -> str:
    where = f" at {bad.where}" if bad.where else ""
    return one_line(f"{bad.summary}{where}")


def _indices(outcome: Outcome, places: Sequence[Place], most: int = _NAMED) -> str:
    more = f" and {len(places) - most:,} more" if len(places) > most else ""
    return ", ".join(_index(outcome, place) for place in places[:most]) + more


def _index(outcome: Outcome, place: Place) -> str:
    return f"{place[1]} of worker {place[0]}" if outcome.is_iterable else str(place[1])
